//go:build unix

// Package child runs a command whose processes all end before an instant, whatever happens to the
// process that has started it.
//
// Two processes watch over the command. The keeper is its parent. It is a second process of this
// program, which does nothing else. Run, in the first process, tells the keeper the instant at
// which the lease ends. Each of the two kills the command at that instant:
//
//   - If the first process is suspended (SIGSTOP), the keeper kills the command.
//   - If the first process dies (SIGKILL, out of memory), the keeper kills the command at once.
//   - If the keeper is suspended or dies, the first process kills the command.
//   - If both die at once, the kernel kills the command itself (PR_SET_PDEATHSIG, Linux only).
//
// On Linux, "the command" means all processes that descend from it, including those that have left
// its process group or its session: both processes are subreapers (PR_SET_CHILD_SUBREAPER), so no
// descendant can leave the tree. On other systems it means its process group, or the first process
// alone if it shares the group of Run (Command.Terminal).
//
// A process of another user (setuid) cannot be killed. Processes that another process starts on
// behalf of the command, such as containers and services, do not belong to it.
package child
