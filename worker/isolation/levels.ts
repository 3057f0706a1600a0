/** Isolation levels of processes that handle input of tenants (task-manager.md section 4). */

/**
 * Strongest first. `namespace`: bubblewrap with mount, process, network, IPC and user namespaces of its own. `uid`:
 * another user of the system. `process`: only the permission model of Node.
 */
export const ISOLATION_LEVELS = ['namespace', 'uid', 'process'] as const
export type IsolationLevel = (typeof ISOLATION_LEVELS)[number]

/** How to start isolated processes on this machine. */
export type Isolation = {
  level: IsolationLevel
  /** True as root: every isolated process gets a user of its own, also in a namespace. */
  changesUser: boolean
  /** Path of Node that the users of isolated processes can reach. */
  node: string
  /** Bubblewrap, and the libraries that Node loads; present at level `namespace`. */
  namespace?: { bwrap: string; libraries: readonly string[] }
}
