"""Builds what qemu boots: Debian's kernel and an initramfs with rdma_rxe, a few tools and our programs.

Everything comes from Debian packages: the kernel's is downloaded and unpacked, never installed; tools and
libraries are copied from this machine. What is built lies in BUILD/softroce and is used again.
"""
import contextlib
import fcntl
import gzip
import lzma
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
MODULES = ["ib_core", "ib_uverbs", "rdma_rxe", "crc32_generic", "veth", "bridge", "dummy", "virtio_pci", "virtio_net",
           "sch_netem"]
TOOLS = ["qemu-system-x86_64", "busybox", "cpio", "ip", "rdma", "bridge", "tc", "dash", "dpkg-deb", "apt-get",
         "apt-cache", "strip", "ldd"]
PROGRAMS = ["pando", "tests/conformance_fabric", "tests/conformance_engine", "tests/cluster_peer_client"]


class Unavailable(Exception):
    """Something that this machine cannot give: the test is skipped, and says why."""


def tool(name):
    path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
    if path is None:
        raise Unavailable(f"{name} is not installed (scripts/deps test installs it where it can)")
    return path


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, **options).stdout


# --- the kernel ---

def kernel_package():
    text = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False).stdout.decode()
    found = re.search(r"Depends: (linux-image-\S+)", text)
    if not found:
        raise Unavailable("apt knows no linux-image-amd64")
    return found[1]


def uncompressed(image):
    """The ELF file inside a bzImage: qemu boots it directly, and nothing has to be unpacked in the guest."""
    data = image.read_bytes()
    for magic, command in ((b"\xfd7zXZ\0", ["xz", "-dc"]), (b"\x28\xb5\x2f\xfd", ["zstd", "-dcq"]),
                           (b"\x02!L\x18", ["lz4", "-dcq"]), (b"\x1f\x8b\x08", ["gzip", "-dcq"])):
        at = data.find(magic)
        while at >= 0 and shutil.which(command[0]):
            out = subprocess.run(command, input=data[at:], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                 check=False).stdout
            if out.startswith(b"\x7fELF"):
                return out
            at = data.find(magic, at + 1)
    raise Unavailable(f"cannot unpack {image.name} (xz-utils and zstd are needed)")


def module_bytes(path):
    if path.suffix == ".xz":
        return lzma.open(path).read()
    if path.suffix == ".gz":
        return gzip.open(path).read()
    if path.suffix == ".zst":
        return run("zstd", "-dcq", path)
    return path.read_bytes()


def copy_modules(root, to):
    """The modules and what they depend on, in an order in which they can be loaded."""
    files = {}
    for path in root.glob("**/*.ko*"):
        files[path.name.split(".ko")[0].replace("-", "_")] = path
    order = []

    def add(name):
        if name in order or name not in files:  # absent: built into the kernel
            return
        data = module_bytes(files[name])
        depends = re.search(rb"\0depends=([^\0]*)\0", data)
        for other in depends[1].decode().split(",") if depends else []:
            add(other)
        (to / f"{name}.ko").write_bytes(data)
        order.append(name)

    for name in MODULES:
        add(name)
    if "rdma_rxe" not in order:
        raise Unavailable("the kernel package has no rdma_rxe")
    (to / "order").write_text("\n".join(order) + "\n")


def fetch_kernel(work):
    """work/vmlinux and work/modules, made once."""
    if (work / "modules/order").exists() and (work / "vmlinux").exists():
        return
    package = kernel_package()
    try:
        run("apt-get", "download", package, cwd=work)
    except subprocess.CalledProcessError as error:
        why = (error.stderr.decode().strip() or "apt-get download failed").splitlines()[-1]
        raise Unavailable(f"cannot download {package}: {why}") from error
    package_file = next(work.glob(f"{package}_*.deb"))
    unpacked = work / "kernel"
    shutil.rmtree(unpacked, ignore_errors=True)
    run("dpkg-deb", "-x", package_file, unpacked)
    package_file.unlink()
    (work / "vmlinux").write_bytes(uncompressed(next(unpacked.glob("boot/vmlinuz-*"))))
    shutil.rmtree(work / "modules", ignore_errors=True)
    (work / "modules").mkdir()
    copy_modules(next(path for path in unpacked.glob("**/lib/modules/*") if path.is_dir()), work / "modules")
    shutil.rmtree(unpacked)


# --- the initramfs ---

class Tree:
    def __init__(self, root):
        self.root = root
        shutil.rmtree(root, ignore_errors=True)
        for folder in ("bin", "proc", "sys", "dev", "tmp", "run", "etc/libibverbs.d", "lib/modules", "test", "var"):
            (root / folder).mkdir(parents=True)

    def put(self, source, to, mode=0o755):
        target = self.root / to.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # busybox has links of many names
        shutil.copyfile(os.path.realpath(source), target)
        target.chmod(mode)
        return target

    def put_program(self, source, to=None, strip=False):
        """A program or library with all libraries that it needs."""
        target = self.put(source, to or f"/bin/{pathlib.Path(source).name}")
        if strip:
            run("strip", target)
        for line in run("ldd", source).decode().splitlines():
            for path in re.findall(r"(/\S+\.so\S*)", line)[:1]:
                if not (self.root / path.lstrip("/")).exists():
                    self.put(path, path)


def pack(root, to):
    names = run("find", ".", cwd=root)
    packed = to.with_suffix(".new")
    packed.write_bytes(run("cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0", input=names, cwd=root))
    packed.replace(to)  # at once: another guest may be starting from it


def providers():
    """Soft-RoCE's half in user space: a plugin of libibverbs."""
    found = sorted(pathlib.Path("/").glob("usr/lib/*/libibverbs/librxe-rdmav*.so"))
    if not found:
        raise Unavailable("librxe is not installed (Debian's ibverbs-providers)")
    return found[:1]


def build_initramfs(work, build):
    tree = Tree(work / "tree")
    tree.put(tool("busybox"), "/bin/busybox")
    for applet in run(tool("busybox"), "--list").decode().split():
        if applet not in ("sh", "busybox"):  # its shell would prefer its own ip, which is not enough
            (tree.root / "bin" / applet).symlink_to("busybox")
    tree.put_program(tool("dash"), "/bin/sh")
    for name in ("ip", "rdma", "bridge", "tc"):
        tree.put_program(tool(name))
    for library in providers():
        tree.put_program(library, str(library))
        tree.put("/etc/libibverbs.d/rxe.driver", "/etc/libibverbs.d/rxe.driver", 0o644)
    for program in [*PROGRAMS, *(f"tests/{path.name}" for path in sorted((build / "tests").glob("softroce_*")))]:
        path = build / program
        if path.suffix == ".so":
            tree.put(path, f"/lib/{path.name}")
        else:
            tree.put_program(path, strip=True)
    for path in (work / "modules").iterdir():
        tree.put(path, f"/lib/modules/{path.name}", 0o644)
    for path in HERE.glob("guest/*"):
        tree.put(path, "/init" if path.name == "init" else f"/test/{path.name}")
    (tree.root / "etc/passwd").write_text("root:x:0:0::/:/bin/sh\n")
    (tree.root / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (tree.root / "etc/ld.so.conf").write_text("/lib/x86_64-linux-gnu\n/usr/lib/x86_64-linux-gnu\n")
    run("ldconfig", "-r", tree.root)
    pack(tree.root, work / "initrd")


@contextlib.contextmanager
def alone(work):
    """Guests of several runs may be prepared at the same time, in one folder."""
    with open(work / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def prepare(build):
    """Where the guest's kernel ("vmlinux") and memory ("initrd") are."""
    work = build / "softroce"
    work.mkdir(exist_ok=True)
    if os.uname().machine != "x86_64":
        raise Unavailable("the guest is an x86-64 one, and so must this machine be")
    for name in TOOLS:
        tool(name)
    with alone(work):
        fetch_kernel(work)
        build_initramfs(work, build)
    return work
