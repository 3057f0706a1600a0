/** What the tests of each protocol share: a platform of their own, the ledger of what inputs cost, and payloads that are dear to read. */
import { Encoder } from 'cbor-x'
import { afterAll, beforeAll, expect } from 'vitest'
import { JSON_VALUES, SENML } from './forms.ts'
import { MAX_TRIES, cheapest, createLedger, growthFault, measureInput } from './ledger.ts'
import { startPlatform } from './platform.ts'
import type { Measured, Platform } from './platform.ts'

export const KIB = 1024
export const MIB = 1024 * KIB
/** A little below the largest message that devices send. */
export const MESSAGE_BYTES = MIB - 4096
/** A little below the largest message of gRPC. */
export const GRPC_BYTES = 4 * MIB - 4096
export const TIMEOUT = { timeout: 120_000 }

/** The platform of one test file; it is there when its tests run. */
export function platformOfTests(): () => Platform {
  let platform: Platform | undefined
  beforeAll(async () => {
    platform = await startPlatform()
  })
  afterAll(async () => {
    await platform?.[Symbol.asyncDispose]()
  })
  return () => {
    if (platform === undefined) throw new Error('the platform has not started')
    return platform
  }
}

/** What came of `work` with so many bytes, or items. */
type Work = (size: number) => Promise<unknown>

/** Notes what each input of one protocol costs. */
export function ledgerOf(protocol: string, platform: () => Platform) {
  const ledger = createLedger(protocol)
  afterAll(() => ledger.print())

  async function once(name: string, work: () => Promise<unknown>): Promise<Measured> {
    const measured = await measureInput(() => platform().measure(work))
    ledger.note(name, measured)
    return measured
  }
  return {
    /** One input. */
    async measure(name: string, work: () => Promise<unknown>): Promise<void> {
      await once(name, work)
      expect(ledger.tooLong()).toEqual([])
    },
    /** The input, and half of it. Collecting garbage belongs to neither: the cheapest of a few tries of each counts. */
    async requireLinear(name: string, size: number, work: Work): Promise<void> {
      const [halves, wholes]: [Measured[], Measured[]] = [[], []]
      let fault: string | undefined
      for (let time = 0; time === 0 || (time < MAX_TRIES && fault !== undefined); time++) {
        halves.push(await once(`half of ${name}`, () => work(size / 2)))
        wholes.push(await once(name, () => work(size)))
        fault = growthFault(cheapest(halves), cheapest(wholes))
      }
      expect([name, fault]).toEqual([name, undefined])
      expect(ledger.tooLong()).toEqual([])
    },
  }
}

const packOfCbor = (bytes: number): Buffer =>
  new Encoder({ useRecords: false, mapsAsObjects: false }).encode(
    Array.from(
      { length: bytes / 10 },
      (_, index) =>
        new Map<number, unknown>([
          [0, `n${index}`],
          [2, index],
        ]),
    ),
  )

export const BOUNDARY = 'boundary'

/** A task that hostile modules are sent to. `answers` are the kinds of answers that are clear: taken, or refused in words. */
export async function createUploader(platform: Platform) {
  const headers = { authorization: platform.bearer }
  const { status, text } = await platform.send({
    method: 'POST',
    path: '/tasks',
    headers: { ...headers, 'content-type': 'application/json' },
    body: JSON.stringify({ name: 'hostile', domain_id: platform.domainId }),
  })
  expect([status, text]).toEqual([201, text])
  const { id } = JSON.parse(text) as { id: string }
  async function send(body: Buffer, type = `multipart/form-data; boundary=${BOUNDARY}`) {
    const sent = { method: 'PUT', path: `/tasks/${id}/upload`, headers: { ...headers, 'content-type': type }, body }
    const answer = await platform.send(sent)
    expect([answer.status, answer.text]).toEqual([expect.toBeOneOf([200, 400, 413, 415, 429]), answer.text])
    return answer
  }
  return {
    id,
    /** Any body. */
    send,
    /** The bytes in the field `file`. */
    upload: (bytes: Buffer) =>
      send(
        Buffer.concat([
          Buffer.from(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n`),
          bytes,
          Buffer.from(`\r\n--${BOUNDARY}--\r\n`),
        ]),
      ),
  }
}

/** Inputs of a size and of half of it, made before anything is measured. */
export function made<Input>(size: number, of: (size: number) => Input): (size: number) => Input {
  const inputs = new Map([size / 2, size].map((some) => [some, of(some)]))
  return (some) => inputs.get(some) as Input
}

/** Payloads that are small to send and dear to read, by their type. */
export const PAYLOADS: readonly { name: string; type: string; of: (bytes: number) => Buffer }[] = [
  ...SENML.slice(0, 3).map(({ name, of }) => ({
    name: `SenML of ${name}`,
    type: 'application/senml+json',
    of: (bytes: number) => Buffer.from(of(bytes)),
  })),
  ...JSON_VALUES.slice(0, 3).map(({ name, of }) => ({
    name: `JSON of ${name}`,
    type: 'application/json',
    of: (bytes: number) => Buffer.from(of(bytes)),
  })),
  { name: 'SenML in CBOR', type: 'application/senml+cbor', of: packOfCbor },
  { name: 'nested CBOR', type: 'application/senml+cbor', of: (bytes) => Buffer.alloc(bytes, 0x81) },
  {
    name: 'CBOR of empty maps',
    type: 'application/senml+cbor',
    of: (bytes) => Buffer.concat([Buffer.from([0x9f]), Buffer.alloc(bytes, 0xa0), Buffer.from([0xff])]),
  },
]
