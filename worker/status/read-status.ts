/** Reads the status of the worker of a folder. */
import { connect } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { statusPath } from './socket-path.ts'
import type { WorkerStatus } from './status.ts'

const DEADLINE_MS = 5_000

/** Rejects with `unavailable` if no worker runs in that folder. */
export async function readStatus(folder: string): Promise<WorkerStatus> {
  try {
    return JSON.parse(await ask(statusPath(folder))) as WorkerStatus
  } catch (cause) {
    throw new ServiceError('unavailable', `failed to read the status of the worker in ${folder}: ${reasonOf(cause)}`, {
      cause,
    })
  }
}

function ask(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(path)
    let text = ''
    socket
      .setEncoding('utf8')
      .setTimeout(DEADLINE_MS, () => socket.destroy(new Error(`no answer within ${DEADLINE_MS / 1000} s`)))
    socket.on('data', (data: string) => {
      text += data
    })
    socket.once('end', () => resolve(text))
    socket.once('error', reject)
  })
}

function reasonOf(error: unknown): string {
  // It exited between the request and the answer.
  if (error instanceof SyntaxError) return 'it exited before it answered'
  const { code, message } = error as NodeJS.ErrnoException
  return code === 'ENOENT' || code === 'ECONNREFUSED' ? 'no worker is running' : message
}
