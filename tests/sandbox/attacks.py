"""Hostile code, one function each. `run(args)` tries something and says "THROUGH" if it worked, else what stopped it.

`args` names the victims: files with a secret word, servers, a process. The same text runs as a capability and, with
`python3`, as a command in the workspace box.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

CANARY = "canary-5d1f"
"""The word in everything that must not be read."""

COMMON = '''
import ctypes, errno, os, signal, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
CANARY = "canary-" + "5d1f"
def call(number, *args):
    """A system call that the filter refuses doesn't get as far as a complaint about its arguments."""
    r = libc.syscall(number, *args)
    e = ctypes.get_errno() if r < 0 else 0
    return "THROUGH" if e not in (errno.EPERM, errno.ENOSYS, errno.EAFNOSUPPORT, errno.EACCES) else errno.errorcode[e]
def read(path):
    with open(path, "rb") as f:
        return "THROUGH" if CANARY.encode() in f.read(1 << 20) else "empty"
'''


@dataclass(frozen=True, slots=True)
class Attack:
    """One attack.

    Attributes:
        plain: What happens without a sandbox, as an ordinary user: "through" shows that the attack works; "stopped" by
            the system itself; "skip" would harm the machine that tests.
        bash: Whether it makes sense as a command in a workspace.
        status: The status that a run must have; None if any will do.
    """

    name: str
    body: str
    plain: str = "through"
    bash: bool = True
    status: str | None = None

    @property
    def code(self) -> str:
        """The file main.py."""
        return (
            COMMON
            + "def run(args):\n"
            + textwrap.indent(textwrap.dedent(self.body).strip("\n"), "    ")
            + "\n"
        )


def syscall(name: str, number: int, *args: str, plain: str = "through", bash: bool = True) -> Attack:
    return Attack(name, f"return call({number}{''.join(', ' + a for a in args)})", plain=plain, bash=bash)


ATTACKS = (
    # ---- files
    Attack("reads an ssh key", "return read(args['home'] + '/.ssh/id_ed25519')"),
    Attack("reads cloud credentials", "return read(args['home'] + '/.aws/credentials')"),
    Attack("reads Satchel's token", "return read(args['home'] + '/.satchel/token')"),
    Attack("reads password hashes", "return 'THROUGH' if b':' in open('/etc/shadow', 'rb').read() else 'empty'", plain="stopped"),
    Attack("reads a key through /proc/self/root", "return read('/proc/self/root' + args['home'] + '/.ssh/id_ed25519')"),
    Attack("reads a key through /proc/1/root", "return read('/proc/1/root' + args['home'] + '/.ssh/id_ed25519')", plain="stopped"),
    Attack("reads a key through its working folder", "return read('/proc/self/cwd/' + '../' * 20 + args['home'] + '/.ssh/id_ed25519')"),
    Attack("reads a key through a link", """
        os.symlink(args['home'] + '/.ssh', 'link')
        return read('link/id_ed25519')
    """),
    Attack("makes a hard link to a key", """
        os.link(args['home'] + '/.ssh/id_ed25519', 'hard')
        return read('hard')
    """),
    Attack("reads a neighbour's folder", "return read(args['neighbour'])"),
    Attack("reads a file of the host's /tmp", "return read(args['in_tmp'])"),
    Attack("writes outside", """
        open(args['outside'], 'w').write('changed')
        return 'THROUGH'
    """),
    Attack("writes a shell's start file", """
        open(args['home'] + '/.bashrc', 'a').write('evil')
        return 'wrote; see the host'
    """),
    Attack("writes the host's /tmp", """
        open(args['tmp_target'], 'w').write('changed')
        return 'wrote; see the host'
    """),
    Attack("removes what isn't its own", """
        os.remove(args['outside'])
        return 'THROUGH'
    """),
    Attack("changes its own code", """
        os.chmod(__file__, 0o644)
        open(__file__, 'a').write('# changed')
        return 'THROUGH'
    """, bash=False),
    Attack("deletes its own files", """
        os.remove(__file__)
        return 'THROUGH'
    """, bash=False),
    Attack("changes its packages", """
        os.chmod(args['layer'], 0o755)
        open(args['layer'] + '/evil.py', 'w').write('x')
        return 'THROUGH'
    """),
    Attack("changes the packages where it sees them", """
        folder = [p for p in sys.path if 'layer' in p][0]
        os.chmod(folder, 0o755)
        open(folder + '/evil.py', 'w').write('x')
        return 'THROUGH'
    """, bash=False),
    Attack("changes the system", """
        open('/usr/lib/evil', 'w').write('x')
        return 'THROUGH'
    """, plain="stopped"),
    Attack("opens devices", """
        for name in ('mem', 'kmsg', 'sda', 'vda', 'nvme0n1', 'port', 'fuse', 'kvm', 'net/tun'):
            try:
                os.open('/dev/' + name, os.O_RDWR)
                return 'THROUGH'
            except OSError as e:
                last = e
        return str(last)
    """, plain="stopped"),
    Attack("makes a device", """
        os.mknod('disk', 0o60666, os.makedev(8, 0))
        return 'THROUGH'
    """, plain="stopped"),
    Attack("looks around in /sys", "return 'THROUGH' if os.listdir('/sys/class') else 'empty'"),
    Attack("sets the kernel's core pattern", """
        # Its own value, in case it works.
        value = open('/proc/sys/kernel/core_pattern').read()
        open('/proc/sys/kernel/core_pattern', 'w').write(value)
        return 'THROUGH'
    """, plain="stopped"),
    Attack("presses the magic key", """
        open('/proc/sysrq-trigger', 'w').write('h')
        return 'THROUGH'
    """, plain="stopped"),
    Attack("looks into control groups", "return 'THROUGH' if os.listdir('/sys/fs/cgroup') else 'empty'"),
    # ---- secrets of processes
    Attack("reads other environments", """
        for pid in os.listdir('/proc'):
            if pid.isdigit():
                try:
                    if CANARY.encode() in open(f'/proc/{pid}/environ', 'rb').read():
                        return 'THROUGH'
                except OSError:
                    pass
        return 'not found'
    """),
    Attack("finds a secret in its own environment", "return 'THROUGH' if CANARY in str(os.environ) else 'not found'", plain="stopped"),
    Attack("finds arguments in command lines", """
        for pid in os.listdir('/proc'):
            if pid.isdigit():
                for name in ('cmdline', 'environ'):
                    try:
                        if args['private'].encode() in open(f'/proc/{pid}/{name}', 'rb').read():
                            return 'THROUGH'
                    except OSError:
                        pass
        return 'not found'
    """, plain="stopped", bash=False),
    Attack("finds an open file of the host", """
        for fd in range(3, 256):
            try:
                if CANARY.encode() in os.pread(fd, 4096, 0):
                    return 'THROUGH'
            except OSError:
                pass
        return 'not found'
    """, plain="stopped"),
    Attack("sees a process of the host", "return 'THROUGH' if os.path.exists(f\"/proc/{args['victim']}/cmdline\") and os.listdir(f\"/proc/{args['victim']}\") else 'not there'"),
    Attack("kills a process of the host", """
        os.kill(args['victim'], signal.SIGCONT)
        return 'THROUGH'
    """),
    Attack("kills everything", """
        os.kill(-1, signal.SIGKILL)
        return 'sent; see the host'
    """, plain="skip"),
    Attack("traces a process of the host", """
        said = call(101, 16, args['victim'], 0, 0)
        return 'not there' if ctypes.get_errno() == errno.ESRCH else said
    """),
    Attack("reads the memory of a process", """
        b = ctypes.create_string_buffer(8)
        iov = (ctypes.c_void_p * 2)(ctypes.addressof(b), 8)
        r = libc.syscall(310, args['victim'], iov, 1, iov, 1, 0)
        e = ctypes.get_errno()
        return 'THROUGH' if r >= 0 or e == errno.EFAULT else errno.errorcode[e]
    """),
    Attack("opens the memory of a process", """
        open(f"/proc/{args['victim']}/mem", 'rb')
        return 'THROUGH'
    """),
    Attack("takes a descriptor of a process", """
        fd = libc.syscall(434, args['victim'], 0)
        return call(438, fd, 0, 0) if fd >= 0 else 'no pidfd'
    """),
    Attack("enters the namespaces of a process", """
        fd = os.open(f"/proc/{args['victim']}/ns/uts", os.O_RDONLY)
        return 'THROUGH'
    """),
    # ---- the kernel
    Attack("makes a user namespace", "return 'THROUGH' if libc.unshare(0x10000000) == 0 else errno.errorcode[ctypes.get_errno()]"),
    Attack("clones into a user namespace", "return 'THROUGH' if libc.syscall(56, 0x10000011, 0, 0, 0, 0) >= 0 else errno.errorcode[ctypes.get_errno()]", plain="skip"),
    syscall("uses clone3", 435, "0", "0"),
    syscall("mounts the new way", 430, "b'tmpfs'", "0", plain="stopped"),
    syscall("mounts", 165, "0", "0", "0", "0", "0", plain="stopped"),
    syscall("opens a tree", 428, "-100", "b'/'", "1", plain="stopped"),
    syscall("loads a kernel program", 321, "0", "0", "0", plain="stopped"),
    syscall("uses io_uring", 425, "1", "0"),
    syscall("uses userfaultfd", 323, "1"),
    syscall("measures the kernel", 298, "0", "0", "-1", "-1", "0"),
    syscall("reads the keyring", 250, "0", "-3", "0"),
    syscall("adds a key", 248, "0", "0", "0", "0", "0"),
    syscall("opens a file by its handle", 304, "-100", "0", "0", plain="stopped"),
    syscall("compares processes", 312, "os.getpid()", "os.getpid()", "0", "0", "0"),
    syscall("changes its root", 161, "b'/'", plain="stopped"),
    syscall("sets the clock", 227, "0", "0", plain="skip"),
    syscall("loads another kernel", 246, "0", "0", "0", "0", plain="stopped"),
    syscall("loads a module", 313, "0", "0", "0", plain="stopped"),
    syscall("reads the kernel's log", 103, "3", "0", "0", plain="skip"),
    syscall("uses hidden memory", 447, "0", plain="skip"),
    syscall("uses a call from the future", 470, "0", plain="stopped"),
    Attack("types into the terminal", """
        r, w = os.pipe()
        b = ctypes.create_string_buffer(b'x')
        return 'THROUGH' if libc.ioctl(r, 0x5412, b) == 0 or ctypes.get_errno() != errno.EPERM else 'EPERM'
    """),
    Attack("uses numbers of another processor", "return 'THROUGH' if libc.syscall(0x40000000 + 39) > 0 else 'ENOSYS'", plain="stopped"),
    Attack("gains rights from a setuid program", "return 'THROUGH' if libc.prctl(39, 0, 0, 0, 0) == 0 else 'no new privileges'"),
    Attack("is root", "return 'THROUGH' if 0 in (os.getuid(), os.geteuid(), os.getgid()) else 'not root'", plain="stopped"),
    Attack("becomes root", """
        os.setuid(0)
        return 'THROUGH'
    """, plain="stopped"),
    Attack("has capabilities", """
        header = (ctypes.c_uint32 * 2)(0x20080522, 0)
        data = (ctypes.c_uint32 * 6)()
        libc.syscall(125, header, data)
        return 'THROUGH' if data[0] or data[1] or data[3] or data[4] else 'none'
    """, plain="stopped"),
    Attack("raises its priority", """
        os.nice(-5)
        return 'THROUGH'
    """, plain="stopped"),
    Attack("asks for real time", """
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
        return 'THROUGH'
    """, plain="stopped"),
    Attack("executes a file in memory", """
        fd = os.memfd_create('x', 0)
        os.write(fd, open('/bin/true', 'rb').read())
        pid = os.fork()
        if pid == 0:
            try:
                os.execve(fd, ['x'], {})
            finally:
                os._exit(9)
        return 'THROUGH' if os.waitpid(pid, 0)[1] == 0 else 'not executed'
    """),
    # ---- the network
    Attack("connects to the host's loopback", """
        s = socket.create_connection(('127.0.0.1', args['tcp']), 2)
        s.sendall(b'hello')
        return 'THROUGH'
    """),
    Attack("sends to the host's loopback", """
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.sendto(b'hello', ('127.0.0.1', args['udp']))
        return 'sent; see the host'
    """),
    Attack("connects to a Unix socket", """
        s = socket.socket(socket.AF_UNIX)
        s.connect(args['unix'])
        return 'THROUGH'
    """),
    Attack("connects to an abstract socket", """
        s = socket.socket(socket.AF_UNIX)
        s.connect(chr(0) + args['abstract'])
        return 'THROUGH'
    """),
    Attack("listens for the host's network", """
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        return 'THROUGH'
    """, plain="stopped"),
    Attack("sees the host's interfaces", """
        names = [n for _, n in socket.if_nameindex()]
        return 'THROUGH' if any(n != 'lo' for n in names) else 'only lo'
    """),
    # ---- limits
    Attack("forks 10,000 times", """
        pids = []
        try:
            for _ in range(args['many']):
                pid = os.fork()
                if pid == 0:
                    time.sleep(30)
                    os._exit(0)
                pids.append(pid)
        except OSError as e:
            return f'{e} after {len(pids)}'
        finally:
            for pid in pids:
                os.kill(pid, 9)
        return 'THROUGH'
    """),
    Attack("starts 10,000 threads", """
        import threading
        stop = threading.Event()
        n = 0
        try:
            for n in range(args['many']):
                threading.Thread(target=stop.wait, args=(30,), daemon=True).start()
        except RuntimeError as e:
            return f'{e} after {n}'
        finally:
            stop.set()
        return 'THROUGH'
    """),
    Attack("is a fork bomb", """
        end = time.time() + 3
        def bomb():
            while time.time() < end:
                try:
                    os.fork()
                except OSError:
                    time.sleep(0.05)
        bomb()
        return 'over; see the host'
    """, plain="skip"),
    Attack("takes 10 GB of memory", """
        held = []
        for _ in range(args['megabytes'] // 8):
            held.append(bytes(8 << 20) + b'x')
            time.sleep(0.01)
        return 'THROUGH'
    """),
    Attack("takes memory in many processes", """
        for _ in range(6):
            if os.fork() == 0:
                held = bytearray(args['megabytes_each'] << 20)
                for i in range(0, len(held), 4096):
                    held[i] = 1
                time.sleep(2)
                os._exit(0)
        alive = 0
        for _ in range(6):
            alive += os.waitstatus_to_exitcode(os.wait()[1]) == 0
        return 'THROUGH' if alive == 6 else f'{alive} survived'
    """),
    Attack("hides memory in files in memory", """
        held = []
        for i in range(40):
            fd = os.memfd_create(str(i), 0)
            for _ in range(8):
                os.write(fd, bytes(1 << 20))
            held.append(fd)
        return 'THROUGH'
    """),
    Attack("writes 10 GB into one file", """
        with open('big', 'wb') as f:
            for _ in range(args['megabytes']):
                f.write(bytes(1 << 20))
                f.flush()
        return 'THROUGH'
    """),
    Attack("fills /tmp", """
        folder = os.environ.get('TMPDIR', '/tmp')
        for i in range(args['megabytes'] // 4):
            with open(f'{folder}/fill{i}', 'wb') as f:
                f.write(bytes(4 << 20))
                f.flush()
                os.fsync(f.fileno())
            time.sleep(0.01)
        return 'THROUGH'
    """, bash=False),
    Attack("fills out", """
        os.makedirs('out', exist_ok=True)
        for i in range(args['megabytes'] // 4):
            with open(f'out/fill{i}', 'wb') as f:
                f.write(bytes(4 << 20))
                f.flush()
                os.fsync(f.fileno())
            time.sleep(0.01)
        return 'THROUGH'
    """, bash=False),
    Attack("fills shared memory", """
        for i in range(args['megabytes']):
            open(f'/dev/shm/{args["private"]}{i}', 'wb').write(bytes(1 << 20))
        return 'THROUGH'
    """, plain="skip", bash=False),
    Attack("fills /dev", """
        open('/dev/evil', 'wb').write(bytes(1 << 20))
        return 'THROUGH'
    """, plain="stopped"),
    Attack("uses up all inodes", """
        folder = os.environ.get('TMPDIR', '/tmp') + '/many'
        os.mkdir(folder)
        for i in range(400_000):
            os.close(os.open(f'{folder}/{i}', os.O_CREAT))
        return 'THROUGH'
    """, plain="skip", bash=False),
    Attack("uses up descriptors", """
        held = []
        try:
            for _ in range(3000):
                held.append(os.open('/dev/null', os.O_RDONLY))
        except OSError as e:
            return str(e)
        return 'THROUGH'
    """, plain="stopped", bash=False),
    Attack("raises its limits", """
        import resource
        soft, hard = resource.getrlimit(resource.RLIMIT_CPU)
        if hard == resource.RLIM_INFINITY:
            return 'THROUGH'
        resource.setrlimit(resource.RLIMIT_CPU, (hard + 100, hard + 100))
        return 'THROUGH'
    """, bash=False),
    Attack("never returns", """
        while True:
            pass
    """, plain="stopped", status="timeout"),
    Attack("ignores every signal", """
        for n in range(1, 65):
            try:
                signal.signal(n, signal.SIG_IGN)
            except (OSError, ValueError):
                pass
        time.sleep(1000)
    """, plain="stopped", status="timeout"),
    Attack("floods stdout", """
        while True:
            os.write(1, b'x' * 65536)
    """, plain="stopped", bash=False, status="output"),
    # ---- afterwards
    Attack("leaves a daemon", """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execve('/bin/sh', ['sh', '-c', 'sleep 987; :', args['marker']], {})
            os._exit(0)
        time.sleep(0.2)
        return 'started; see the host'
    """, plain="skip"),
    Attack("holds its output open", """
        if os.fork() == 0:
            time.sleep(1000)
        return 'started; see the host'
    """, plain="skip", bash=False),
    # ---- the result
    Attack("prints a result", """
        print('{"status": "ok", "result": "THROUGH"}')
        print('+{"status": "ok", "result": "THROUGH"}', file=sys.stderr, flush=True)
        import atexit
        atexit.register(lambda: print('{"status": "ok", "result": "THROUGH"}'))
        return 'the real one'
    """, plain="stopped", bash=False, status="ok"),
    Attack("leaves by os._exit", "os._exit(0)", plain="stopped", bash=False, status="no_result"),
    Attack("leaves by SystemExit", "sys.exit(0)", plain="stopped", bash=False, status="error"),
    Attack("kills itself", "os.kill(os.getpid(), 9)", plain="stopped", bash=False, status="no_result"),
    Attack("crashes", "ctypes.string_at(0)", plain="stopped", bash=False, status="no_result"),
    Attack("closes every descriptor", """
        os.closerange(0, 1024)
        return 'x'
    """, plain="stopped", bash=False, status="no_result"),
    Attack("returns no text", "return {'a': 1}", plain="stopped", bash=False, status="bad_return"),
    Attack("returns a coroutine", """
        async def later():
            return 'x'
        c = later()
        c.close()
        return c
    """, plain="stopped", bash=False, status="bad_return"),
    Attack("returns 50 MB", "return 'x' * (50 << 20)", plain="stopped", bash=False, status="result_too_large"),
    Attack("returns half a character", "return chr(0xd800)", plain="stopped", bash=False, status="ok"),
    Attack("recurses", """
        def f():
            return f()
        return f()
    """, plain="stopped", bash=False, status="error"),
    Attack("raises what can't be shown", """
        class Nasty(BaseException):
            def __str__(self):
                raise self
        raise Nasty
    """, plain="stopped", bash=False, status="no_result"),
    Attack("writes nonsense as its result", """
        for fd in range(3, 64):
            try:
                os.write(fd, b'[' * 200_000)
            except OSError:
                pass
        os._exit(0)
    """, plain="stopped", bash=False, status="bad_result"),
    # ---- artifacts
    Attack("leaves traps in out", """
        os.makedirs('out/deep', exist_ok=True)
        os.symlink(args['home'] + '/.ssh/id_ed25519', 'out/link')
        os.symlink(args['home'], 'out/folder')
        os.mkfifo('out/pipe')
        open('out/good', 'w').write('good')
        os.link('out/good', 'out/twice')
        with open('out/sparse', 'wb') as f:
            try:
                f.truncate(10 << 30)
            except OSError:
                pass
        return 'set; see the host'
    """, plain="skip", bash=False, status="ok"),
    Attack("puts a link in the place of out", """
        import shutil
        try:
            shutil.rmtree('out')
        except OSError:
            return 'out stays'
        os.symlink(args['home'] + '/.ssh', 'out')
        return 'set; see the host'
    """, plain="skip", bash=False, status="ok"),
)  # fmt: skip
