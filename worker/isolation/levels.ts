/** The boundaries that can stand around a process that handles what tenants sent (task-manager.md section 4). */

/**
 * The strongest first. `namespace`: bubblewrap with mount, process, network, IPC and user namespaces of its own. `uid`:
 * another user of the system. `process`: the permission model of Node alone.
 */
export const ISOLATION_LEVELS = ['namespace', 'uid', 'process'] as const
export type IsolationLevel = (typeof ISOLATION_LEVELS)[number]

/** How isolated processes are started on this machine. */
export type Isolation = {
  level: IsolationLevel
  /** True as root: every isolated process gets a user of its own, inside a namespace too. */
  changesUser: boolean
  /** Node, at a path that the users of isolated processes can reach. */
  node: string
  /** Bubblewrap, and the libraries that Node loads; present at level `namespace`. */
  namespace?: { bwrap: string; libraries: readonly string[] }
}
