/** ModuleService of the manager: uploaded modules by digest, from an offset, in parts, as fast as the reader reads. */
import { once } from 'node:events'
import { create } from '@bufbuild/protobuf'
import { status } from '@grpc/grpc-js'
import type { Metadata } from '@grpc/grpc-js'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { countPassing } from '#core/passing-buffers.ts'
import { FetchResponseSchema, type FetchRequest, type ModuleService, type ServiceHandlers } from '#proto/index.ts'
import { grpcFailure } from '../dispatch/failure.ts'
import { MAX_CHUNK_BYTES } from '../runs/limits.ts'
import { isWorker, parseCredential } from '../workers/registration.ts'
import { findModule, readChunk } from './repository.ts'
import type { TicketOffice } from './tickets.ts'

/** A reader that takes no byte for this long is given up. */
const STALLED_READER_MS = 60_000

export function moduleHandlers({
  database,
  tickets,
  logger,
}: {
  database: Database
  tickets: TicketOffice
  logger: Logger
}): ServiceHandlers<typeof ModuleService> {
  return {
    resolve: (_call, callback) => {
      callback({
        code: status.UNIMPLEMENTED,
        details: 'the manager serves uploads by digest; ask the proxy for references',
      })
    },
    fetch: (call) => {
      const send = async (): Promise<void> => {
        const workerId = await requireWorker(database, call.metadata)
        requireTicket(tickets, workerId, call.request)
        const { digest, offset } = call.request
        for await (const data of readModule(database, digest, Number(offset))) {
          if (call.cancelled) return
          countPassing(data.length)
          if (!call.write(create(FetchResponseSchema, { data }))) {
            await once(call, 'drain', { signal: AbortSignal.timeout(STALLED_READER_MS) })
          }
        }
        call.end()
      }
      send().catch((error: unknown) => {
        if (call.cancelled) return
        const failure =
          error instanceof OffsetBeyondEnd ? { code: status.OUT_OF_RANGE, details: error.message } : grpcFailure(error)
        if (failure.code === status.INTERNAL) logger.error({ err: error }, 'a module could not be served')
        call.emit('error', failure)
      })
    },
  }
}

class OffsetBeyondEnd extends Error {}

async function* readModule(database: Database, digest: string, offset: number): AsyncGenerator<Uint8Array> {
  const module = await findModule(database.db, digest)
  if (module === undefined) throw new ServiceError('not_found', `there is no module ${digest.slice(0, 80)}`)
  if (offset > module.sizeBytes) throw new OffsetBeyondEnd(`the module has ${module.sizeBytes} bytes`)
  for (let position = offset; position < module.sizeBytes;) {
    const chunk = await readChunk(database, module.key, Math.floor(position / MAX_CHUNK_BYTES))
    const data = chunk?.subarray(position % MAX_CHUNK_BYTES)
    if (data === undefined || data.length === 0) throw new Error(`module ${digest} lacks its bytes from ${position} on`)
    yield data
    position += data.length
  }
}

/** The id of the worker that the metadata name with its secret. Throws `unauthenticated`. */
async function requireWorker(database: Database, metadata: Metadata): Promise<string> {
  const [header] = metadata.get('authorization')
  const text = typeof header === 'string' && header.startsWith('Bearer ') ? header.slice('Bearer '.length) : ''
  const credential = parseCredential(text)
  if (credential === undefined || !(await isWorker(database, credential))) {
    throw new ServiceError(
      'unauthenticated',
      'modules are served to workers: authorization must be Bearer <worker_id>.<worker_secret>',
    )
  }
  return credential.id
}

/** A worker reads what it was assigned: a domain's own worker must not reach the modules of others by digest. */
function requireTicket(tickets: TicketOffice, workerId: string, { ticket, digest }: FetchRequest): void {
  if (tickets.verify(ticket, { digest, reference: '' }, Math.floor(Date.now() / 1000)) === workerId) return
  throw new ServiceError('unauthenticated', 'the ticket is missing, expired, or of another worker or module')
}
