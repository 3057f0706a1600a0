/** The command line of an isolated process at each level: readable files, user, and visible parts of the system. */
import { isAbsolute } from 'node:path'
import type { Isolation } from './levels.ts'

/** Users of such processes: 60578 to 61183 are unassigned (systemd, "Users, Groups, UIDs and GIDs"). */
const FIRST_UID = 60_600
const MAX_USERS = 583
/** Node inside a namespace. */
const NODE_INSIDE = '/node'
/** Descriptor on which bubblewrap reports the process id of its child outside of the namespace (bwrap(1), --info-fd). */
export const INFO_FD = 3

export type IsolatedCommand = {
  /** The only readable folder, also the working directory; undefined: none. */
  codeFolder: string | undefined
  /** Index of its user, so that an escaped guest cannot even signal other guests. */
  user: number
  /** Arguments of Node. */
  node: readonly string[]
  /** Reports its process id on `INFO_FD`. */
  reportsPid?: boolean
}

export type SpawnCommand = {
  command: string
  args: string[]
  options: { env: Record<string, string>; cwd: string; uid?: number; gid?: number }
}

export function commandFor(isolation: Isolation, wanted: IsolatedCommand): SpawnCommand {
  const { codeFolder, user, node } = wanted
  const uid = FIRST_UID + (user % MAX_USERS)
  const owner = isolation.changesUser ? { uid, gid: uid } : {}
  if (isolation.namespace === undefined) {
    // A thread can read below the working directory of its process, independent of the permission model (Node 26.10).
    return { command: isolation.node, args: [...node], options: { env: {}, cwd: codeFolder ?? '/', ...owner } }
  }
  const { bwrap, libraries } = isolation.namespace
  const readable = [...libraries, ...(codeFolder === undefined ? [] : [codeFolder])].filter(isAbsolute)
  const args = [
    ['--unshare-user', '--unshare-ipc', '--unshare-pid', '--unshare-net', '--unshare-uts', '--unshare-cgroup-try'],
    ['--disable-userns', '--die-with-parent', '--new-session', '--as-pid-1', '--clearenv'],
    ['--cap-drop', 'ALL'],
    wanted.reportsPid === true ? ['--info-fd', String(INFO_FD)] : [],
    ...readable.map((path) => ['--ro-bind', path, path]),
    ['--ro-bind', isolation.node, NODE_INSIDE],
    ['--dev', '/dev'],
    ['--remount-ro', '/'],
    ['--chdir', codeFolder ?? '/'],
    ['--', NODE_INSIDE, ...node],
  ].flat()
  return { command: bwrap, args, options: { env: {}, cwd: '/', ...owner } }
}
