/** `RegistryService` of `proto/cluster/v1/module.proto`: what managers ask of the cache and of registries. */
import { create } from '@bufbuild/protobuf'
import type { Metadata, sendUnaryData } from '@grpc/grpc-js'
import { Secret } from '#core/config/index.ts'
import { ServiceError, kindOf } from '#core/errors/index.ts'
import type { Logger } from '#core/logging/index.ts'
import { DescribeResponseSchema, PullResponseSchema, PushResponseSchema, RemoveResponseSchema } from '#proto/index.ts'
import type {
  DescribeResponse,
  PushHeader,
  PushRequest,
  PushResponse,
  RegistryService,
  ServerDuplexStream,
  ServiceHandlers,
} from '#proto/index.ts'
import type { ModuleSource } from '../module-source.ts'
import type { PushOrder, Pushes } from '../pushes.ts'
import type { Callers } from './callers.ts'
import { statusOf } from './status.ts'

export type RegistryServiceDeps = { source: ModuleSource; pushes: Pushes; callers: Callers; logger: Logger }

type PushCall = ServerDuplexStream<PushRequest, PushResponse>

const MAX_DESCRIBED = 100

export function registryServiceHandlers({
  source,
  pushes,
  callers,
  logger,
}: RegistryServiceDeps): ServiceHandlers<typeof RegistryService> {
  /** Answers a unary call of a manager. */
  async function answer<T>(
    metadata: Metadata,
    callback: sendUnaryData<T>,
    what: Record<string, unknown>,
    work: () => Promise<T>,
  ): Promise<void> {
    try {
      await callers.requireManager(metadata)
      callback(null, await work())
    } catch (error) {
      report(error, what)
      callback(statusOf(error))
    }
  }

  function report(error: unknown, what: Record<string, unknown>): void {
    if (kindOf(error) === 'internal') logger.error({ ...what, err: error }, 'registry request failed')
    else logger.info({ ...what, reason: error instanceof Error ? error.message : '' }, 'registry request refused')
  }

  async function describe(digests: readonly string[], withExports: boolean): Promise<DescribeResponse> {
    if (digests.length > MAX_DESCRIBED) {
      throw new ServiceError('malformed', `at most ${MAX_DESCRIBED} modules are described at a time`)
    }
    const modules = (await source.describe(digests, withExports)).map(({ digest, sizeBytes, usedMs, facts }) => ({
      digest,
      sizeBytes: BigInt(sizeBytes),
      lastUsedMs: BigInt(Math.round(usedMs)),
      exportsJson: facts?.exports === undefined ? '' : JSON.stringify(facts.exports),
    }))
    return create(DescribeResponseSchema, { modules })
  }

  async function push(call: PushCall): Promise<void> {
    await callers.requireManager(call.metadata)
    // The end of what is read is not the end of the call: the answer is still to come.
    const parts = call.iterator({ destroyOnReturn: false }) as AsyncIterator<PushRequest>
    const first = await parts.next()
    const part = first.done === true ? undefined : first.value.part
    if (part?.case !== 'header') throw new ServiceError('malformed', 'a push begins with its header')
    const order = orderOf(part.value)
    const reference = await pushes.push(order, bytesOf(parts, call))
    logger.info({ reference }, 'module pushed')
    call.write(create(PushResponseSchema, { reference }))
    call.end()
  }

  return {
    pull: ({ metadata, request: { digest, reference } }, callback) =>
      void answer(metadata, callback, { digest, reference }, async () => {
        const { handle } = await source.open(digest, reference)
        await handle.close()
        return create(PullResponseSchema)
      }),
    describe: ({ metadata, request: { digests, withoutExports } }, callback) =>
      void answer(metadata, callback, { digests: digests.length }, () => describe(digests, !withoutExports)),
    remove: ({ metadata, request: { digest } }, callback) =>
      void answer(metadata, callback, { digest }, async () => {
        await source.discard(digest)
        return create(RemoveResponseSchema)
      }),
    push: (call) => {
      call.on('error', () => undefined) // a caller that went away; the loop that reads hears of it
      push(call).catch((error: unknown) => {
        report(error, { call: 'push' })
        call.emit('error', statusOf(error))
      })
    },
  }
}

function orderOf({ reference, digest, sizeBytes, domainId, username, password }: PushHeader): PushOrder {
  const credentials = username === '' ? undefined : { username, password: new Secret(password) }
  return {
    reference,
    digest: digest === '' ? undefined : digest,
    sizeBytes: sizeBytes === 0n ? undefined : Number(sizeBytes),
    domainId,
    credentials,
  }
}

/** Says how much it took after each part, which is what the sender waits for. */
async function* bytesOf(parts: AsyncIterator<PushRequest>, call: PushCall): AsyncGenerator<Buffer> {
  let takenBytes = 0n
  for (let next = await parts.next(); next.done !== true; next = await parts.next()) {
    const { part } = next.value
    if (part.case !== 'data') throw new ServiceError('malformed', 'a push has one header and then bytes')
    yield Buffer.from(part.value.buffer, part.value.byteOffset, part.value.byteLength)
    takenBytes += BigInt(part.value.byteLength)
    call.write(create(PushResponseSchema, { takenBytes }))
  }
}
