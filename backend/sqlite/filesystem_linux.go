package sqlite

import "syscall"

// networkFileSystems are the types of file systems that several hosts can share: see statfs(2).
var networkFileSystems = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "SMB", 0xfe534d42: "SMB", 0x00c36400: "Ceph", 0x01021997: "9P",
	0x65735546: "FUSE", 0x5346414f: "AFS", 0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x0bd00bd0: "Lustre",
}

// networkFileSystem returns the name of the file system, if it is one of the network, or "".
func networkFileSystem(path string) string {
	var stat syscall.Statfs_t
	if syscall.Statfs(path, &stat) != nil {
		return ""
	}
	return networkFileSystems[int64(uint32(stat.Type))] //nolint:gosec // of any type
}
