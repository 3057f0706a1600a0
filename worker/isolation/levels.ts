/** The boundaries that can stand around a process that handles what tenants sent (task-manager.md section 4). */

/**
 * The strongest first. `namespace`: bubblewrap with mount, process, network, IPC and user namespaces of its own. `uid`:
 * another user of the system. `process`: the permission model of Node alone.
 */
export const ISOLATION_LEVELS = ['namespace', 'uid', 'process'] as const
export type IsolationLevel = (typeof ISOLATION_LEVELS)[number]
