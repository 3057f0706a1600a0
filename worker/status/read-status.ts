/** Asks the worker of a folder about itself. */
import { connect } from 'node:net'
import { ServiceError } from '#core/errors/index.ts'
import { statusPath } from './socket-path.ts'
import type { WorkerStatus } from './status.ts'

const DEADLINE_MS = 5_000

/** Rejects with `unavailable` when no worker runs in that folder. */
export function readStatus(folder: string): Promise<WorkerStatus> {
  return new Promise((resolve, reject) => {
    const socket = connect(statusPath(folder))
    let text = ''
    socket.setEncoding('utf8').setTimeout(DEADLINE_MS, () => socket.destroy(new Error('it did not answer in time')))
    socket.on('data', (data: string) => {
      text += data
    })
    socket.once('end', () => resolve(JSON.parse(text) as WorkerStatus))
    socket.once('error', (cause) => {
      const { code } = cause as NodeJS.ErrnoException
      const why = code === 'ENOENT' || code === 'ECONNREFUSED' ? 'none runs there' : cause.message
      reject(new ServiceError('unavailable', `the worker of ${folder} cannot be asked: ${why}`, { cause }))
    })
  })
}
