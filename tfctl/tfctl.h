/* The subcommands of tfctl. Each gets its own part of the command line (argv[0] is its name) and
 * returns the exit code: 0 success, 64 wrong usage, 70 the cluster or the step failed, 74 a file or
 * the connection failed. */
#ifndef MILLRACE_TFCTL_TFCTL_H
#define MILLRACE_TFCTL_TFCTL_H

int tfctl_local(int argc, char **argv);
int tfctl_devices(int argc, char **argv);
int tfctl_run(int argc, char **argv);
int tfctl_status(int argc, char **argv);
int tfctl_doctor(int argc, char **argv);
int tfctl_top(int argc, char **argv);
int tfctl_costs(int argc, char **argv);
int tfctl_drain(int argc, char **argv);
int tfctl_trace(int argc, char **argv);
int tfctl_graph(int argc, char **argv);
int tfctl_job(int argc, char **argv);
int tfctl_checkpoint(int argc, char **argv);
int tfctl_certs(int argc, char **argv);
int tfctl_tunnel(int argc, char **argv);

#endif
