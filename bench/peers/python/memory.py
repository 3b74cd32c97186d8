"""Resident memory of this program, in bytes, as the kernel reports it."""


def resident():
    return _kibibytes("/proc/self/smaps_rollup", "Rss:") * 1024


def peak():
    return _kibibytes("/proc/self/status", "VmHWM:") * 1024


def _kibibytes(path, field):
    with open(path) as lines:
        for line in lines:
            if line.startswith(field):
                return int(line.split()[1])
    raise OSError(f"{path} has no field {field}")
