// Results of any size share one stream: a large one must not delay the others
import { Duplex } from 'node:stream'
import { create } from '@bufbuild/protobuf'
import { expect, test } from 'vitest'
import { RunRefSchema, RunResultSchema, WorkerLimitsSchema } from '#proto/index.ts'
import type { RunRef, SessionRequest } from '#proto/index.ts'
import { digestOf } from '#core/digest.ts'
import { Outbox } from './outbox.ts'
import type { SessionStream } from './outbox.ts'

const LIMITS = create(WorkerLimitsSchema, {
  maxInlineResultBytes: 64n,
  maxChunkBytes: 1_024n,
  maxMessageBytes: 1_000_000n,
})
const LARGE = JSON.stringify('x'.repeat(10_000))

const refOf = (runId: string): RunRef => create(RunRefSchema, { runId, attempt: 1, fence: 1n })
const resultOf = (runId: string, resultsJson: string) => create(RunResultSchema, { run: refOf(runId), resultsJson })
const turn = () => new Promise(setImmediate)

/** A stream that takes a message when it is told to, and the messages that it has. */
function slowStream() {
  const written: NonNullable<SessionRequest['message']>[] = []
  const taken: (() => void)[] = []
  const stream = new Duplex({
    objectMode: true,
    read() {},
    write({ message }: SessionRequest, _encoding, done) {
      written.push(message)
      taken.push(done)
    },
  })
  return { stream: stream as unknown as SessionStream, written, take: () => taken.shift()?.() }
}

const summaryOf = ({ case: kind, value }: SessionRequest['message']) => {
  if (kind === 'result')
    return value.results.map(({ run, staged }) => `result ${run?.runId}${staged ? ', staged' : ''}`).join()
  if (kind === 'cancelAck') return `cancelled ${value.run?.runId}`
  return kind
}

test('a small result and a cancellation overtake the chunks of a large result, which arrives whole, and its own cancellation after it', async () => {
  const { stream, written, take } = slowStream()
  const outbox = new Outbox(stream, LIMITS)
  outbox.ended(resultOf('large', LARGE))
  await turn()
  outbox.ended(resultOf('small', '1'))
  outbox.cancelled(refOf('large'), false)
  outbox.cancelled(refOf('other'), false)
  for (let step = 0; step < 20; step++) {
    take()
    await turn()
    await turn()
  }
  const kinds = written.map(summaryOf)
  expect(kinds.slice(0, 3)).toEqual(['resultChunk', 'result small', 'cancelled other'])
  expect(kinds.slice(3)).toEqual([
    ...Array.from({ length: 9 }, () => 'resultChunk'),
    'result large, staged',
    'cancelled large',
  ])
  const chunks = written.flatMap((message) => (message.case === 'resultChunk' ? [message.value] : []))
  const whole = Buffer.concat(chunks.map(({ data }) => data))
  expect(whole.toString()).toBe(LARGE)
  expect(chunks.map(({ offset }) => Number(offset))).toEqual(chunks.map((_chunk, index) => index * 1_024))
  expect(new Set(chunks.map(({ digest }) => digest))).toEqual(new Set([digestOf(whole)]))
})
