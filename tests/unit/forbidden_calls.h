/* SPDX-License-Identifier: MIT */
/*
 * System calls that no confined process may make, whatever it reads. Each is tried with arguments
 * that do nothing useful: the filter of a confined process refuses it with EPERM before the kernel
 * looks at them, where an open way says something else.
 */
#ifndef TXDA_TESTS_FORBIDDEN_CALLS_H
#define TXDA_TESTS_FORBIDDEN_CALLS_H

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "unit.h"

#define FORBIDDEN_CALL(name, ...)                                                                  \
	{                                                                                          \
#name, SYS_##name,                                                                 \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

/* How many of them did not fail with EPERM; each is printed. @parent: a process of the same user;
 * @allowed: the call that may be made all the same, or -1. */
static int try_forbidden_calls(pid_t parent, long allowed)
{
	static char byte, path[] = "/tmp";
	const struct {
		const char *name;
		long call, args[5];
	} calls[] = {
		/* rings, faults, programs and counters in the kernel */
		FORBIDDEN_CALL(io_uring_setup, 1),
		FORBIDDEN_CALL(io_uring_enter, -1),
		FORBIDDEN_CALL(io_uring_register, -1),
		FORBIDDEN_CALL(io_setup, 1),
		FORBIDDEN_CALL(userfaultfd, 0),
		FORBIDDEN_CALL(bpf, 0),
		FORBIDDEN_CALL(perf_event_open, 0),
		FORBIDDEN_CALL(keyctl, 0),
		FORBIDDEN_CALL(add_key, 0),
		FORBIDDEN_CALL(request_key, 0),
		FORBIDDEN_CALL(init_module, 0),
		FORBIDDEN_CALL(finit_module, -1),
		FORBIDDEN_CALL(kexec_load, 0),
		FORBIDDEN_CALL(memfd_create, (long)path, 0),
		FORBIDDEN_CALL(personality, 0xffffffff),
		/* other processes */
		FORBIDDEN_CALL(ptrace, PTRACE_ATTACH, parent),
		FORBIDDEN_CALL(process_vm_readv, parent),
		FORBIDDEN_CALL(process_vm_writev, parent),
		FORBIDDEN_CALL(kcmp, parent, parent),
		FORBIDDEN_CALL(kill, parent, 0),
		FORBIDDEN_CALL(kill, -1, 0),
		FORBIDDEN_CALL(tkill, parent, 0),
		FORBIDDEN_CALL(tgkill, parent, parent, 0),
		FORBIDDEN_CALL(rt_sigqueueinfo, parent, 0, (long)&byte),
		FORBIDDEN_CALL(rt_tgsigqueueinfo, parent, parent, 0, (long)&byte),
		FORBIDDEN_CALL(pidfd_open, parent, 0),
		FORBIDDEN_CALL(pidfd_getfd, 0, 0, 0),
		FORBIDDEN_CALL(setpgid, 0, 0),
		FORBIDDEN_CALL(setsid),
		FORBIDDEN_CALL(setpriority, 0, parent, 0),
		FORBIDDEN_CALL(sched_setaffinity, parent, 0),
		FORBIDDEN_CALL(sched_setscheduler, parent, 0),
		FORBIDDEN_CALL(prlimit64, parent, 0, 0, (long)path),
		FORBIDDEN_CALL(migrate_pages, parent),
		/* programs and namespaces */
		FORBIDDEN_CALL(execve, (long)path),
		FORBIDDEN_CALL(execveat, AT_FDCWD, (long)path),
		FORBIDDEN_CALL(unshare, CLONE_NEWUSER),
		FORBIDDEN_CALL(setns, -1, 0),
		FORBIDDEN_CALL(clone, CLONE_NEWUSER | SIGCHLD),
		FORBIDDEN_CALL(clone, CLONE_NEWNET | SIGCHLD),
		FORBIDDEN_CALL(mount, (long)path, (long)path),
		FORBIDDEN_CALL(umount2, (long)path, 0),
		FORBIDDEN_CALL(open_tree, AT_FDCWD, (long)path, 0),
		FORBIDDEN_CALL(move_mount, -1),
		FORBIDDEN_CALL(fsopen, (long)path, 0),
		FORBIDDEN_CALL(pivot_root, (long)path, (long)path),
		FORBIDDEN_CALL(chroot, (long)path),
		/* whose it is */
		FORBIDDEN_CALL(setuid, 0),
		FORBIDDEN_CALL(setresuid, 0, 0, 0),
		FORBIDDEN_CALL(setgroups, 0, 0),
		FORBIDDEN_CALL(capset, 0, 0),
		/* talk */
		FORBIDDEN_CALL(socket, AF_UNIX, SOCK_STREAM),
		FORBIDDEN_CALL(socket, AF_INET, SOCK_STREAM),
		FORBIDDEN_CALL(socket, AF_INET6, SOCK_DGRAM),
		FORBIDDEN_CALL(socket, AF_NETLINK, SOCK_RAW),
		FORBIDDEN_CALL(socket, AF_PACKET, SOCK_RAW),
		FORBIDDEN_CALL(socket, AF_VSOCK, SOCK_STREAM),
		FORBIDDEN_CALL(socket, AF_ALG, SOCK_SEQPACKET),
		FORBIDDEN_CALL(socketpair, AF_UNIX, SOCK_STREAM, 0, (long)&byte),
		FORBIDDEN_CALL(connect, -1),
		FORBIDDEN_CALL(bind, -1),
		FORBIDDEN_CALL(listen, -1),
		FORBIDDEN_CALL(accept4, -1),
		FORBIDDEN_CALL(sendmsg, -1),
		FORBIDDEN_CALL(sendto, -1),
		FORBIDDEN_CALL(ioctl, 0, 0),
		FORBIDDEN_CALL(shmget, 0),
		FORBIDDEN_CALL(msgget, 0),
		FORBIDDEN_CALL(semget, 0),
		FORBIDDEN_CALL(mq_open, (long)path),
		/* files in other ways, and what files are */
		FORBIDDEN_CALL(name_to_handle_at, AT_FDCWD, (long)path),
		FORBIDDEN_CALL(open_by_handle_at, AT_FDCWD),
		FORBIDDEN_CALL(fanotify_init, 0),
		FORBIDDEN_CALL(inotify_init1, 0),
		FORBIDDEN_CALL(symlinkat, (long)path, AT_FDCWD, (long)path),
		FORBIDDEN_CALL(mknodat, AT_FDCWD, (long)path),
		FORBIDDEN_CALL(fchmodat, AT_FDCWD, (long)path, 0),
		FORBIDDEN_CALL(fchownat, AT_FDCWD, (long)path, -1, -1),
		FORBIDDEN_CALL(setxattr, (long)path),
		FORBIDDEN_CALL(chdir, (long)path),
	};
	int wrong = 0;

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		const long *a = calls[i].args;
		long r = syscall(calls[i].call, a[0], a[1], a[2], a[3], a[4]);
		int error = r < 0 ? errno : 0;
		bool right = error == EPERM || calls[i].call == allowed;

		/* A call that made a process. */
		if (!r && calls[i].call == SYS_clone)
			_exit(0);
		fprintf(stderr, "%-20s %6ld %-40s%s\n", calls[i].name, a[0],
			error ? strerror(error) : "works", right ? "" : " WRONG");
		wrong += !right;
	}
	return wrong;
}

#endif
