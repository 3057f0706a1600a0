/** Runs a command of the system. */
import { execFile } from 'node:child_process'
import { ServiceError } from '#core/errors/index.ts'

/** What a command of systemd prints about a failure. */
const MAX_SHOWN_CHARACTERS = 500

/** Its output. Throws `unavailable` with what it printed, or when it does not end within the deadline. */
export async function runSystemCommand(command: string, args: readonly string[], deadlineMs: number): Promise<string> {
  return await new Promise((resolve, reject) => {
    execFile(command, [...args], { timeout: deadlineMs, killSignal: 'SIGKILL' }, (error, stdout, stderr) => {
      if (error === null) {
        resolve(stdout)
        return
      }
      const printed = `${stderr}${stdout}`.trim().slice(0, MAX_SHOWN_CHARACTERS)
      const reason =
        error.code === 'ENOENT'
          ? 'it is not installed'
          : error.killed === true
            ? `no end within ${deadlineMs / 1000} s`
            : printed
      reject(
        new ServiceError('unavailable', `${command} ${args.join(' ')} failed: ${reason || error.message}`, {
          cause: error,
        }),
      )
    })
  })
}
