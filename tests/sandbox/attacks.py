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
        end = time.time() + 1
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
    Attack("returns no text", "return {'a': 1}", plain="stopped", bash=False, status="ok"),
    Attack("returns nothing", "return None", plain="stopped", bash=False, status="bad_return"),
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
    # ---- less common ways
    Attack("reads through every descriptor that it inherited", """
        for fd in range(0, 256):
            try:
                where = os.readlink(f'/proc/self/fd/{fd}')
            except OSError:
                continue
            if where.startswith('/') and args['home'] in where:
                return 'THROUGH'
        return 'none leads there'
    """, plain="stopped"),
    Attack("leaves its root through a descriptor of a folder", """
        for fd in range(0, 256):
            try:
                up = os.open('../../../../../../../..' + args['home'] + '/.ssh/id_ed25519', os.O_RDONLY, dir_fd=fd)
            except OSError:
                continue
            return 'THROUGH' if CANARY.encode() in os.read(up, 100) else 'empty'
        return 'none leads there'
    """, plain="stopped"),
    Attack("reads a key through its own tasks", "return read('/proc/self/task/%d/root%s/.ssh/id_ed25519' % (os.getpid(), args['home']))"),
    Attack("reads a key through /proc/self/map_files", """
        for name in os.listdir('/proc/self/map_files'):
            if args['home'] in os.readlink('/proc/self/map_files/' + name):
                return 'THROUGH'
        return 'not there'
    """, plain="stopped"),
    Attack("enters every process's root", """
        for pid in os.listdir('/proc'):
            if pid.isdigit():
                try:
                    if CANARY.encode() in open(f"/proc/{pid}/root{args['home']}/.ssh/id_ed25519", 'rb').read():
                        return 'THROUGH'
                except OSError:
                    pass
        return 'not found'
    """),
    Attack("writes to another's memory through /proc", """
        for pid in os.listdir('/proc'):
            if pid.isdigit() and int(pid) not in (os.getpid(), 1, os.getppid()):
                try:
                    open(f'/proc/{pid}/mem', 'r+b').close()
                    if int(pid) == args['victim']:
                        return 'THROUGH'
                except OSError:
                    pass
        return 'none'
    """),
    Attack("makes the victim the first to be killed", """
        fd = os.open(f"/proc/{args['victim']}/oom_score_adj", os.O_WRONLY)
        os.write(fd, b'1000')
        return 'THROUGH'
    """),
    Attack("saves itself from the memory killer", """
        fd = os.open('/proc/self/oom_score_adj', os.O_WRONLY)
        os.write(fd, b'-1000')
        return 'THROUGH'
    """, plain="stopped"),
    Attack("changes another's priority", """
        os.setpriority(os.PRIO_PROCESS, args['victim'], 19)
        return 'THROUGH'
    """, plain="skip"),
    Attack("changes another's processors", """
        os.sched_setaffinity(args['victim'], {min(os.sched_getaffinity(0))})
        return 'THROUGH'
    """, plain="skip"),
    Attack("limits another", """
        import resource
        resource.prlimit(args['victim'], resource.RLIMIT_NOFILE, (5, 5))
        return 'THROUGH'
    """, plain="skip"),
    Attack("signals by a pidfd", """
        fd = os.pidfd_open(args['victim'])
        signal.pidfd_send_signal(fd, signal.SIGCONT)
        return 'THROUGH'
    """),
    Attack("signals its group and session", """
        os.killpg(0, signal.SIGCONT)
        os.killpg(os.getpgid(args['victim']), signal.SIGCONT)
        return 'THROUGH'
    """),
    Attack("asks another for a signal on input", """
        import fcntl
        r, w = os.pipe()
        fcntl.fcntl(r, fcntl.F_SETOWN, args['victim'])
        fcntl.fcntl(r, 10, signal.SIGKILL)
        fcntl.fcntl(r, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.write(w, b'x')
        time.sleep(0.1)
        return 'sent; see the host'
    """, plain="skip"),
    Attack("reads a queue of the host", """
        b = ctypes.create_string_buffer(64)
        queue = libc.syscall(68, args['queue'], 0)
        return 'THROUGH' if queue >= 0 and libc.syscall(70, queue, b, 32, 0, 0o4000) >= 0 else 'none'
    """),
    Attack("leaves memory that outlives it", """
        shm = libc.syscall(29, 0x5a7c4e1, 1 << 20, 0o1666)
        return 'made; see the host' if shm >= 0 else errno.errorcode[ctypes.get_errno()]
    """, plain="skip"),
    Attack("opens a packet socket of the old kind", """
        socket.socket(socket.AF_INET, 10, 0x300)
        return 'THROUGH'
    """, plain="stopped"),
    Attack("talks to the host over vsock", """
        s = socket.socket(40, socket.SOCK_STREAM)
        return 'THROUGH'
    """),
    Attack("asks the kernel over netlink", """
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        return 'THROUGH'
    """),
    Attack("uses the kernel's ciphers", """
        s = socket.socket(38, socket.SOCK_SEQPACKET)
        s.bind(('hash', 'sha256'))
        return 'THROUGH'
    """, plain="stopped"),
    Attack("uses rare kinds of sockets", """
        for family in (3, 4, 5, 9, 11, 15, 18, 21, 23, 29, 30, 31, 33, 36, 37, 39, 41, 42, 43, 44, 45):
            try:
                socket.socket(family, socket.SOCK_DGRAM)
                return 'THROUGH'
            except OSError:
                pass
        return 'none'
    """, plain="skip"),
    Attack("asks a name server", """
        for server in ('127.0.0.53', '8.8.8.8', '1.1.1.1'):
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.settimeout(0.3)
            try:
                s.sendto(b'\\0\\1\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\7example\\3org\\0\\0\\1\\0\\1', (server, 53))
                s.recv(512)
                return 'THROUGH'
            except OSError:
                pass
        return 'nobody answered'
    """, plain="skip"),
    Attack("resolves a name by the system", """
        socket.getaddrinfo('secret.example.org', 443)
        return 'THROUGH'
    """, plain="skip"),
    Attack("connects over IPv6", """
        s = socket.create_connection(('::ffff:127.0.0.1', args['tcp']), 2)
        return 'THROUGH'
    """),
    Attack("passes a descriptor to a server", """
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.connect(args['unix'])
        socket.send_fds(s, [b'x'], [0])
        return 'THROUGH'
    """),
    syscall("watches the file system", 300, "0", "0", plain="stopped"),
    syscall("changes a mount", 442, "-100", "b'/'", "0", "0", "0", plain="stopped"),
    syscall("moves a mount", 429, "-100", "b'/tmp'", "-100", "b'/'", "0", plain="stopped"),
    syscall("takes out its root", 155, "b'/tmp'", "b'/tmp'", plain="stopped"),
    syscall("names the machine", 170, "b'evil'", "4", plain="stopped"),
    syscall("turns on accounting", 163, "b'/tmp/x'", plain="stopped"),
    syscall("turns on swap", 167, "b'/tmp/x'", "0", plain="stopped"),
    syscall("restarts the machine", 169, "0", "0", "0", "0", plain="skip"),
    syscall("uses ports of the processor", 172, "3", plain="stopped"),
    syscall("moves pages of a process", 279, "args['victim']", "0", "0", "0", "0", "0"),
    syscall("advises on another's memory", 440, "-1", "0", "0", "0", "0", plain="skip"),
    Attack("sets an extended attribute with a capability", """
        open('program', 'w').write('x')
        os.setxattr('program', 'security.capability', bytes.fromhex('0100000201000000000000000000000000000000'))
        return 'THROUGH'
    """, plain="stopped"),
    Attack("makes a program that runs as its owner", """
        import shutil
        shutil.copy('/bin/true', 'setuid')
        os.chmod('setuid', 0o6755)
        mode = os.stat('setuid').st_mode & 0o6000
        return 'made; own user only' if mode else 'refused'
    """, plain="stopped"),
    Attack("makes a file too large by seeking", """
        fd = os.open('sparse', os.O_RDWR | os.O_CREAT)
        os.ftruncate(fd, 1 << 40)
        return 'THROUGH'
    """),
    Attack("reserves a large file", """
        fd = os.open('reserved', os.O_RDWR | os.O_CREAT)
        os.posix_fallocate(fd, 0, 64 << 20)
        return 'THROUGH'
    """),
    Attack("dumps its core into the folder", """
        import resource
        if resource.getrlimit(resource.RLIMIT_CORE)[1] != 0:
            return 'THROUGH'
        return 'no core'
    """),
    Attack("makes deep folders and long names", """
        here = os.open('.', os.O_RDONLY)
        os.makedirs('out', exist_ok=True)
        os.chdir('out')
        for _ in range(600):
            os.mkdir('d' * 200)
            os.chdir('d' * 200)
        open('deep', 'w').write('x')
        os.fchdir(here)
        return 'made; see the host'
    """, plain="skip", bash=False, status="ok"),
    Attack("gives artifacts hostile names", """
        os.makedirs('out', exist_ok=True)
        for name in ('..evil', '-rf', 'new\\nline', '\\x1b]0;evil\\x07', '\\u202egnp.exe', 'a\\\\..\\\\b', 'CON', ' ', '~', '$(id)'):
            open('out/' + name, 'w').write('x')
        open(b'out/\\xff\\xfe', 'w').write('x')
        return 'made; see the host'
    """, plain="skip", bash=False, status="ok"),
    Attack("changes artifacts while they are read", """
        os.makedirs('out', exist_ok=True)
        if os.fork() == 0:
            os.setsid()
            while True:
                for victim in (args['home'] + '/.ssh/id_ed25519', args['outside']):
                    try:
                        os.symlink(victim, 'out/.swap')
                        os.rename('out/.swap', 'out/a')
                    except OSError:
                        pass
        time.sleep(0.1)
        return 'made; see the host'
    """, plain="skip", bash=False, status="ok"),
    Attack("makes artifacts unreadable", """
        os.makedirs('out/locked', exist_ok=True)
        open('out/locked/x', 'w').write('x')
        open('out/secret', 'w').write('x')
        os.chmod('out/secret', 0)
        os.chmod('out/locked', 0)
        return 'made; see the host'
    """, plain="skip", bash=False, status="ok"),
    Attack("leaves a device and a socket as artifacts", """
        os.makedirs('out', exist_ok=True)
        try:
            os.mknod('out/null', 0o20666, os.makedev(1, 3))
            return 'THROUGH'
        except OSError:
            pass
        try:
            socket.socket(socket.AF_UNIX).bind('out/sock')
        except OSError:
            pass
        return 'made; see the host'
    """, plain="skip", bash=False, status="ok"),
    Attack("forges two results", """
        for fd in range(3, 64):
            try:
                os.write(fd, b'+{"status": "ok", "result": "THROUGH"}{"status": "ok", "result": "x"}')
            except OSError:
                pass
        return 'the real one'
    """, plain="skip", bash=False),
    Attack("names itself in the place of a module", """
        for folder in ('/tmp', '.', os.path.dirname(__file__)):
            for name in ('sitecustomize.py', 'usercustomize.py', 'json.py', 'evil.pth'):
                try:
                    open(os.path.join(folder, name), 'w').write('raise SystemExit(99)')
                except OSError:
                    pass
        return 'made; the next run sees nothing of it'
    """, plain="skip", bash=False, status="ok"),
    Attack("starts a tree of sessions", """
        for _ in range(6):
            if os.fork() == 0:
                os.setsid()
                if os.fork():
                    os._exit(0)
                os.execve('/bin/sh', ['sh', '-c', 'trap "" TERM HUP INT; sleep 986; :', args['marker']], {})
        time.sleep(0.2)
        return 'started; see the host'
    """, plain="skip"),
    Attack("adopts orphans", """
        libc.prctl(36, 1, 0, 0, 0)
        if os.fork() == 0:
            if os.fork():
                os._exit(0)
            os.execve('/bin/sh', ['sh', '-c', 'sleep 985; :', args['marker']], {})
        time.sleep(0.2)
        os._exit(3)
    """, plain="skip"),
    Attack("waits for an alarm after its death", """
        if os.fork() == 0:
            os.setsid()
            signal.signal(signal.SIGALRM, lambda *_: None)
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            os.execve('/bin/sh', ['sh', '-c', 'while :; do sleep 1; done', args['marker']], {})
        return 'started; see the host'
    """, plain="skip"),
    Attack("prints control characters", """
        for _ in range(100):
            os.write(1, b'\\x1b]52;c;ZXZpbA==\\x07\\x1b[2J\\x00\\xff' * 20)
        return 'printed'
    """, plain="stopped", bash=False, status="ok"),
    Attack("locks the files of the host", """
        import fcntl
        f = open(args['outside'], 'r+')
        fcntl.flock(f, fcntl.LOCK_EX)
        return 'THROUGH'
    """),
    Attack("sets an attribute outside", """
        os.setxattr(args['outside'], 'user.evil', b'x')
        return 'THROUGH'
    """, plain="skip"),
    Attack("changes times outside", """
        os.utime(args['outside'], (1, 1))
        return 'THROUGH' if os.stat(args['outside']).st_mtime == 1 else 'only pretended'
    """),
    Attack("changes modes outside", """
        os.chmod(args['outside'], 0o777)
        os.chmod(args['home'] + '/.aws', 0)
        changed = os.stat(args['outside']).st_mode & 0o777 == 0o777
        return 'THROUGH' if changed else 'only pretended'
    """),
    Attack("changes modes through a descriptor", """
        fd = os.open(__file__, os.O_RDONLY)
        before = os.fstat(fd).st_mode
        os.fchmod(fd, 0o606)
        return 'THROUGH' if os.fstat(fd).st_mode != before else 'only pretended'
    """, bash=False),
    Attack("swaps two files across the border", """
        open('mine', 'w').write('evil')
        r = libc.syscall(316, -100, b'mine', -100, args['outside'].encode(), 2)
        return 'THROUGH' if r == 0 else errno.errorcode[ctypes.get_errno()]
    """, plain="skip"),
)  # fmt: skip
