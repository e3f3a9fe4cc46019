"""Makes network namespaces that represent hosts: each has a name, an address, and a connection to
the namespace of the page.

Needs root in a network and mount namespace of its own: run.py starts a page in one.
"""
import subprocess

HOSTS_FILE = "/etc/hosts"


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def inside(holder, *command):
    """The command line that runs a command on the host of a process."""
    return ["nsenter", "--target", str(holder.pid), "--net", "--uts", *command]


class Hosts:
    """The hosts of one page. They are made when they are first named, and end with the page's
    process namespace."""

    def __init__(self, aliases):
        """aliases: {name in a certificate or an address: host}"""
        self.holders, self.aliases = {}, aliases

    def command(self, name, command):
        """The command line that runs `command` on the host."""
        return inside(self.holders[name], *command)

    def add(self, names):
        for name in names:
            if name not in self.holders:
                self._add(name)

    def _add(self, name):
        n = len(self.holders) + 1
        holder = subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c",
                                   'hostname "$1"; echo; exec sleep infinity', "sh", name],
                                  stdout=subprocess.PIPE)
        holder.stdout.readline()  # the host has its name and namespaces now
        run("ip", "link", "add", f"wire{n}", "type", "veth", "peer", "name", "eth0", "netns",
            str(holder.pid))
        run("ip", "address", "add", f"10.7.{n}.1/24", "dev", f"wire{n}")
        run("ip", "link", "set", f"wire{n}", "up")
        for command in (("link", "set", "lo", "up"),
                        ("address", "add", f"10.7.{n}.2/24", "dev", "eth0"),
                        ("link", "set", "eth0", "up"),
                        ("route", "add", "default", "via", f"10.7.{n}.1")):
            run(*inside(holder, "ip", *command))
        self.holders[name] = holder
        names = [name] + [alias for alias, host in self.aliases.items() if host == name]
        with open(HOSTS_FILE, "a", encoding="utf-8") as f:
            f.write(f"10.7.{n}.2 {' '.join(names)}\n")


def prepare():
    """Loopback and forwarding in the page's namespace, and a file of host names of its own."""
    run("ip", "link", "set", "lo", "up")
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as f:
        f.write("1")
