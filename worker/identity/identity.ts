/** The identity of this worker, stored in its data folder: the id and the secret from the manager. */
import { mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { ServiceError } from '#core/errors/index.ts'
import { replaceFile } from '#core/sync-folder.ts'

export type Identity = {
  workerId: string
  workerSecret: string
  /** Fingerprint of the manager's certificate, if the join token contained it. */
  fingerprint: string | undefined
}

/** Undefined: never registered. Throws `malformed` for an invalid file. */
export async function readIdentity(path: string): Promise<Identity | undefined> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
    throw error
  }
  const [workerId = '', workerSecret = '', fingerprint, ...rest] = text.trim().split('\n')
  if (workerId === '' || workerSecret === '' || rest.length > 0) {
    throw new ServiceError('malformed', `${path} is damaged; remove it to register as a new worker`)
  }
  return { workerId, workerSecret, fingerprint }
}

/** The file is synced when this returns: losing the id would leave a dead worker in every listing. */
export async function writeIdentity(path: string, identity: Identity): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  const { workerId, workerSecret, fingerprint } = identity
  const lines = [workerId, workerSecret, ...(fingerprint === undefined ? [] : [fingerprint])]
  await replaceFile(path, `${lines.join('\n')}\n`, 0o600)
}
