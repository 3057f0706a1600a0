/** Maps failures of the server to one sentence with advice. The details stay in the log. */
import { existsSync } from 'node:fs'
import { ServiceError } from '#core/errors/index.ts'

/** The server found files or memory of another server; a retry may succeed. */
const LEFTOVER = /pre-existing shared memory block|could not bind Unix address|Is another postmaster/

const NO_SPACE = /No space left on device|Disk quota exceeded|Check free disk space|wrote only \d/

/** Error codes of SQLite, whose file lock is used, as the codes of Node. */
const SQLITE_CODES: Record<number, string> = { 3: 'EACCES', 8: 'EROFS', 13: 'ENOSPC', 14: 'EACCES' }

/** True when the server failed because an earlier one had not ended completely. */
export function isLeftoverConflict(output: string): boolean {
  const hasLockFile = output.includes('lock file "') && output.includes('" already exists')
  return hasLockFile || LEFTOVER.test(output)
}

/** The error for a program of PostgreSQL that ended with this output; `what` is the purpose of the program. */
export function programFailure(what: string, output: string): ServiceError {
  const reason = explain(output)
  return new ServiceError('unavailable', `${what}: ${reason}`, { context: { output: output.slice(-4000) } })
}

function explain(output: string): string {
  // Exhausted shared memory gives "no space left on device" too, for another device.
  if (/could not create shared memory segment|could not resize shared memory/.test(output)) {
    return `the system has too little shared memory (${lastFatal(output)}); enlarge /dev/shm, or set SKEIN_DATABASE_URL`
  }
  if (NO_SPACE.test(output))
    return 'the disk is full; free some space, or set SKEIN_DATA_DIR to a folder on another disk'
  if (/error while loading shared libraries|Library not loaded/.test(output)) {
    return `a library is missing (${lastLine(output)}); run npm ci, or set SKEIN_DATABASE_URL`
  }
  const nameless = /could not look up effective user ID (\d+)/.exec(output)
  if (nameless !== null) {
    return (
      `user id ${nameless[1]} has no name in /etc/passwd, which PostgreSQL requires; add one, let a user with a name ` +
      'own the data folder, or set SKEIN_DATABASE_URL'
    )
  }
  if (LEFTOVER.test(output)) return `another PostgreSQL is still using the folder (${lastFatal(output)})`
  if (/could not locate a valid checkpoint record|invalid primary checkpoint record/.test(output)) {
    return `its write-ahead log is damaged (${lastFatal(output)}); restore a backup`
  }
  return lastFatal(output)
}

/** The error for a program of PostgreSQL that could not be started. */
export function spawnFailure(error: NodeJS.ErrnoException, file: string): ServiceError {
  const advice = 'or set SKEIN_DATABASE_URL to a PostgreSQL server of your own'
  const reason = (() => {
    switch (error.code) {
      // The file exists, so its loader is missing: musl in place of glibc.
      case 'ENOENT':
        return existsSync(file)
          ? `${file} needs the GNU C library, which this system lacks; use a glibc system, ${advice}`
          : `${file} is missing; run npm ci, ${advice}`
      case 'EACCES':
        return `${file} may not be executed; mount its file system without noexec, make it executable (chmod +x), ${advice}`
      case 'EPERM':
      case 'EINVAL':
        return `this system does not let root run a program under another user id; start Skein as an ordinary user, ${advice}`
      case 'ENOEXEC':
        return `${file} is built for another processor; run npm ci on this machine, ${advice}`
      case 'EAGAIN':
      case 'ENOMEM':
        return `the system cannot start another process (${error.code}); raise its limits, ${advice}`
      default:
        return `${file} cannot be started (${error.code ?? error.message}); ${advice.slice(3)}`
    }
  })()
  return new ServiceError('unavailable', `the embedded PostgreSQL cannot run: ${reason}`, { cause: error })
}

/** The error for a file or folder that could not be read or written. */
export function fileFailure(error: unknown, what: string): ServiceError {
  if (error instanceof ServiceError) return error
  const { code, errcode } = error as NodeJS.ErrnoException & { errcode?: number }
  const reason = (() => {
    switch (errcode === undefined ? code : SQLITE_CODES[errcode & 0xff]) {
      case 'ENOSPC':
      case 'EDQUOT':
        return 'the disk is full; free some space, or set SKEIN_DATA_DIR to a folder on another disk'
      case 'EACCES':
      case 'EPERM':
        return 'permission denied; change its owner, or set SKEIN_DATA_DIR to a folder that Skein may write'
      case 'EROFS':
        return 'the file system is read-only; set SKEIN_DATA_DIR to a folder that Skein may write'
      case 'ENOTDIR':
      case 'EEXIST':
        return 'a file exists in its place; set SKEIN_DATA_DIR to a folder'
      default:
        return errcode === undefined && code !== undefined ? code : (error as Error).message
    }
  })()
  return new ServiceError('unavailable', `${what}: ${reason}`, { cause: error })
}

function lastFatal(output: string): string {
  const lines = output.split('\n').filter((line) => /(FATAL|PANIC|ERROR|error):/.test(line))
  const line = lines.at(-1) ?? lastLine(output)
  return line.replace(/^.*?(FATAL|PANIC|ERROR|error):\s*/, '').trim()
}

function lastLine(output: string): string {
  return output.trim().split('\n').at(-1)?.trim() || 'it ended without output'
}
