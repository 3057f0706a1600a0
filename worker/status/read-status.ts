/** Asks the worker of a folder about itself. */
import { connect } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { statusPath } from './socket-path.ts'
import type { WorkerStatus } from './status.ts'

const DEADLINE_MS = 5_000

/** Rejects with `unavailable` when no worker runs in that folder. */
export async function readStatus(folder: string): Promise<WorkerStatus> {
  try {
    return JSON.parse(await ask(statusPath(folder))) as WorkerStatus
  } catch (cause) {
    throw new ServiceError('unavailable', `the worker of ${folder} cannot be asked: ${reasonOf(cause)}`, { cause })
  }
}

function ask(path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(path)
    let text = ''
    socket.setEncoding('utf8').setTimeout(DEADLINE_MS, () => socket.destroy(new Error('it did not answer in time')))
    socket.on('data', (data: string) => {
      text += data
    })
    socket.once('end', () => resolve(text))
    socket.once('error', reject)
  })
}

function reasonOf(error: unknown): string {
  // It ended between the question and the answer.
  if (error instanceof SyntaxError) return 'it ended before it had answered'
  const { code, message } = error as NodeJS.ErrnoException
  return code === 'ENOENT' || code === 'ECONNREFUSED' ? 'none runs there' : message
}
