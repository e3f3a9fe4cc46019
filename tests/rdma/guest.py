"""A throw-away machine with an RDMA device: Debian's own kernel with its Soft-RoCE driver, in QEMU
under software emulation.

    guest = Guest(); guest.run(files, script, ...) -> (exit status, output)

No part of it is installed: the kernel's package is downloaded and unpacked once (into
build/rdma-guest), and each run packs an initramfs with busybox, the files that it is given and the
shared libraries that they need. A hardware virtualisation that happens to be there is not used,
because it may still refuse a stock kernel. In the guest, rxe0 stands on the dummy interface
`dummy0` with 10.77.0.1.
"""
import glob
import io
import lzma
import os
import re
import shutil
import stat
import subprocess
import tarfile
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
CACHE = os.environ.get("MILLRACE_RDMA_GUEST", os.path.join(ROOT, "build", "rdma-guest"))
PROGRAMS = ("qemu-system-x86_64", "busybox", "rdma", "dpkg-deb", "apt-get")
MODULES = ("crc32_generic", "rdma_rxe", "ib_uverbs", "dummy")
# Emulated, `rep movsb` and carry-less products cost more than what they replace.
CPU = "max,-erms,-fsrm,-pclmulqdq"


class Unavailable(Exception):
    """This host cannot run the guest, and why."""


def find_program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


# ---- the kernel ----

def kernel_package():
    shown = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL, text=True).stdout
    names = re.findall(r"Depends: (linux-image-\d\S*)", shown)
    if not names:
        raise Unavailable("apt knows no linux-image-amd64")
    return names[0]


def fetch_package(name, folder):
    """The .deb: from apt's own cache, or downloaded."""
    kept = glob.glob(f"/var/cache/apt/archives/{name}_*_amd64.deb")
    if kept:
        return kept[-1]
    done = subprocess.run(["apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", name],
                          cwd=folder, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    found = glob.glob(os.path.join(folder, f"{name}_*.deb"))
    if done.returncode != 0 or not found:
        raise Unavailable(f"cannot download {name}: {done.stdout.strip()[-300:]}")
    return found[0]


def elf_of(image):
    """A compressed kernel holds the plain one, which starts two seconds sooner; the image itself
    where that is not found."""
    for match in re.finditer(b"\xfd7zXZ\x00", image):
        try:
            plain = lzma.LZMADecompressor(format=lzma.FORMAT_XZ).decompress(image[match.start():])
        except lzma.LZMAError:
            continue
        if plain[:4] == b"\x7fELF":
            return plain
    return image


def module_name(path):
    return os.path.basename(path).split(".")[0].replace("-", "_")


def in_load_order(modules, wanted):
    """A module's file says which others it needs. `modules`: name -> contents."""
    order = []

    def add(name):
        if name in order or name not in modules:  # what is not there is built in
            return
        depends = re.search(rb"\0depends=([^\0]*)\0", modules[name])
        for other in (depends.group(1).decode().split(",") if depends else []):
            if other:
                add(other.replace("-", "_"))
        order.append(name)

    for name in wanted:
        add(name)
    return order


def unpack_kernel(package, folder):
    archive = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE,
                             check=True).stdout
    modules, kernel = {}, None
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        for member in tar:
            if member.name.startswith("./boot/vmlinuz-"):
                kernel = elf_of(tar.extractfile(member).read())
            elif re.search(r"/kernel/(drivers/infiniband/(core|sw/rxe)|crypto|net/ipv[46]|"
                           r"drivers/net/dummy|fs/configfs)", member.name) and \
                    re.search(r"\.ko(\.xz)?$", member.name):
                data = tar.extractfile(member).read()
                modules[module_name(member.name)] = lzma.decompress(data) if member.name.endswith(
                    ".xz") else data
    order = in_load_order(modules, MODULES)
    if kernel is None or "rdma_rxe" not in order:
        raise Unavailable(f"{os.path.basename(package)} has no kernel with rdma_rxe (the cloud "
                          "flavour has not)")
    with open(os.path.join(folder, "kernel"), "wb") as out:
        out.write(kernel)
    for i, name in enumerate(order):
        with open(os.path.join(folder, f"{i:02}-{name}.ko"), "wb") as out:
            out.write(modules[name])


def kernel_folder():
    """The kernel and its modules, unpacked; the one that an earlier run made serves as it is."""
    ready = sorted(glob.glob(os.path.join(CACHE, "linux-image-*")))
    if ready:
        return ready[-1]
    name = kernel_package()
    os.makedirs(CACHE, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as work:
        folder = os.path.join(work, "ready")
        os.mkdir(folder)
        unpack_kernel(fetch_package(name, work), folder)
        os.rename(folder, os.path.join(CACHE, name))
    return os.path.join(CACHE, name)


# ---- the initramfs ----

class Archive:
    """A cpio archive in the "newc" form that kernels unpack."""

    def __init__(self):
        self.out, self.n, self.known = io.BytesIO(), 0, set()

    def entry(self, name, mode, data=b""):
        if name in self.known:
            return
        self.known.add(name)
        self.n += 1
        head = [self.n, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        self.out.write(b"070701" + "".join(f"{field:08x}" for field in head).encode()
                       + name.encode() + b"\0")
        self.out.write(b"\0" * (-self.out.tell() % 4) + data)
        self.out.write(b"\0" * (-self.out.tell() % 4))

    def folder(self, name):
        parent = os.path.dirname(name)
        if parent:
            self.folder(parent)
        if name not in self.known:
            self.entry(name, stat.S_IFDIR | 0o755)

    def link(self, name, to):
        self.folder(os.path.dirname(name))
        self.entry(name, stat.S_IFLNK | 0o777, to.encode())

    def data(self, name, data, mode=0o755):
        self.folder(os.path.dirname(name))
        self.entry(name, stat.S_IFREG | mode, data)

    def file(self, name, path):
        with open(path, "rb") as source:
            self.data(name, source.read())

    def finish(self):
        self.entry("TRAILER!!!", 0)
        return self.out.getvalue()


def libraries_of(paths):
    found = set()
    for path in paths:
        shown = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True).stdout
        if "not found" in shown:
            raise Unavailable(f"a library of {path} is missing")
        found.update(re.findall(r"(/\S+) \(0x", shown))
    return found


def loaded_later():
    """What ldd does not name: the provider of the device, and what the C library loads by itself.
    """
    providers = glob.glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
    verbs = glob.glob("/usr/lib/*/libibverbs.so.1")
    if not providers or not verbs:
        raise Unavailable("ibverbs-providers is not installed")
    return providers + verbs + glob.glob("/lib/x86_64-linux-gnu/libgcc_s.so.1")


def make_initramfs(kernel, files, script):
    """files: name in /work -> path; script: what busybox's sh runs there."""
    archive = Archive()
    for name in ("bin", "work", "proc", "sys", "dev", "tmp", "run", "etc/libibverbs.d", "usr"):
        archive.folder(name)
    archive.link("sbin", "bin")
    archive.link("usr/bin", "../bin")
    archive.file("bin/busybox", find_program("busybox"))
    archive.file("bin/rdma", find_program("rdma"))
    archive.file("init", os.path.join(HERE, "guest_init.sh"))
    archive.data("etc/libibverbs.d/rxe.driver", b"driver rxe\n")
    archive.data("etc/passwd", b"root:x:0:0:root:/tmp:/bin/sh\n")
    archive.data("etc/hosts", b"127.0.0.1 localhost\n")
    archive.data("etc/nsswitch.conf", b"hosts: files\n")
    archive.data("etc/script", script.encode())
    for path in sorted(glob.glob(os.path.join(kernel, "*.ko"))):
        archive.file("modules/" + os.path.basename(path), path)
    for name, path in files.items():
        archive.file("work/" + name, path)
    binaries = [path for path in files.values() if open(path, "rb").read(4) == b"\x7fELF"]
    libraries = set(loaded_later()) | libraries_of(
        binaries + loaded_later() + [find_program("rdma")])
    for path in sorted(libraries):
        archive.file(path.lstrip("/"), os.path.realpath(path))
    folders = sorted({os.path.dirname(path) for path in libraries})
    archive.data("etc/libraries", ":".join(folders).encode())
    return archive.finish()


# ---- running it ----

def check_host():
    missing = [name for name in PROGRAMS if not find_program(name)]
    if missing:
        raise Unavailable(f"missing: {', '.join(missing)} (tools/setup all)")
    loaded_later()


def run(files, script, timeout_s, memory_mb=1024):
    """(exit status or None when the guest did not come to an end, output, the kernel's own words).
    """
    check_host()
    kernel = kernel_folder()
    with tempfile.TemporaryDirectory(prefix="millrace-guest-") as work:
        def path(name):
            return os.path.join(work, name)
        with open(path("initramfs"), "wb") as out:
            out.write(make_initramfs(kernel, files, script))
        command = [find_program("qemu-system-x86_64"), "-M", "pc", "-accel", "tcg,thread=multi",
                   "-cpu", CPU, "-smp", "2", "-m", str(memory_mb),
                   "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                   "-kernel", os.path.join(kernel, "kernel"), "-initrd", path("initramfs"),
                   "-append",
                   "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off tsc=unstable "
                   "clocksource=hpet random.trust_cpu=on",
                   "-serial", f"file:{path('console')}", "-serial", f"file:{path('output')}",
                   "-serial", f"file:{path('status')}"]
        try:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, timeout=timeout_s)
        except subprocess.TimeoutExpired:
            pass

        def read(name):
            try:
                return open(path(name), errors="replace").read().replace("\r", "")
            except OSError:
                return ""
        status = re.search(r"\d+", read("status"))
        return int(status.group()) if status else None, read("output"), read("console")
