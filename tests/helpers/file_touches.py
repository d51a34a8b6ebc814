"""What others do to a file without changing its content: only its ctime differs afterwards."""

import os


def link(file):
    os.link(file, file.with_name("linked"))


def change_permissions(file):
    file.chmod(0o600)


def change_owner(file):
    os.chown(file, file.stat().st_uid, file.stat().st_gid)


def set_access_time(file):
    os.utime(file, ns=(0, file.stat().st_mtime_ns))


def rename_there_and_back(file):
    file.rename(file.with_name("renamed")).rename(file)


TOUCHES = (link, change_permissions, change_owner, set_access_time, rename_there_and_back)


def overwrite_with_its_times(file):
    """Change the content, and only that and the ctime."""
    before, content = file.stat(), bytearray(file.read_bytes())
    content[-1] ^= 1
    with file.open("r+b") as out:
        out.write(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
