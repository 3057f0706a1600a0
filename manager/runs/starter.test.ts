import { expect, it } from 'vitest'
import { GroupCommit } from '#core/database/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { userCause } from '../model/cause.ts'
import { UnresolvedImage, type StartRequest, type StartedRun } from '../model/start.ts'
import type { Submission } from './starter.ts'
import { RunStarter } from './starter.ts'

/** More starts of one domain than this would delay the start of another one. */
const MAX_STARTS_AHEAD = 100

/** A starter whose writer commits a start when the test says so, in the order of arrival. */
function newStarter() {
  const queued: { request: StartRequest; commit: (started: StartedRun) => void }[] = []
  const order: string[] = []
  const starter = new RunStarter({
    knownTasks: { imageUrlOf: () => null },
    resolveImage: () => Promise.reject(new Error('no task has an image')),
    writer: {
      start: (request) => {
        const { promise, resolve } = Promise.withResolvers<StartedRun>()
        queued.push({ request, commit: resolve })
        order.push(request.runId)
        return promise
      },
    },
  })
  const commitAll = async () => {
    let committed = 0
    for (let next = queued.shift(); next !== undefined; next = queued.shift()) {
      next.commit({ runId: next.request.runId, runKey: (committed += 1), taskKey: 1 })
      // The group of this start may have ended, and the next one begin.
      if (queued.length === 0) await new Promise((resolve) => void setImmediate(resolve))
    }
  }
  return { starter, order, queued, commitAll }
}

function submissionsOf(domain: string, count: number): Submission[] {
  return Array.from({ length: count }, (_, index) => ({
    runId: `${domain}-${index}`,
    overrides: {},
    drivesTask: false,
    cause: userCause(undefined),
    needsWorker: true,
    idempotency: undefined,
    traceparent: undefined,
  }))
}

it('a start is queued behind a bounded number of starts of another domain', async () => {
  const { starter, order, queued, commitAll } = newStarter()
  const begun: string[] = []
  const many = starter.startMany({ id: 'task-a', domainId: 'a' }, submissionsOf('a', 1000), ({ runId }) => {
    begun.push(runId)
  })
  const one = starter.startMany({ id: 'task-b', domainId: 'b' }, submissionsOf('b', 1), () => undefined)
  await new Promise((resolve) => void setImmediate(resolve))
  expect(order).toContain('b-0')
  expect(order.indexOf('b-0')).toBeLessThanOrEqual(MAX_STARTS_AHEAD)
  expect(queued.length).toBeLessThanOrEqual(MAX_STARTS_AHEAD + 1)
  await commitAll()
  expect(await one).toEqual([expect.objectContaining({ runId: 'b-0' })])
  const ended = await many
  expect(ended.map((each) => (each instanceof Error ? each.message : each.runId))).toEqual(
    submissionsOf('a', 1000).map(({ runId }) => runId),
  )
  expect(begun).toHaveLength(1000)
})

it('64 calls of one domain share a commit, and a call with many starts does not delay them by more than its turn', async () => {
  const { starter, order, queued, commitAll } = newStarter()
  const invoke = (index: number) => {
    const [submission] = submissionsOf(`call-${index}`, 1) as [Submission]
    return starter.startMany({ id: 'task', domainId: 'a' }, [submission], () => undefined)
  }
  const calls = Array.from({ length: 64 }, (_, index) => invoke(index))
  await new Promise((resolve) => void setImmediate(resolve))
  expect(queued).toHaveLength(64)
  const many = starter.startMany({ id: 'task', domainId: 'a' }, submissionsOf('many', 1000), () => undefined)
  const late = Array.from({ length: 64 }, (_, index) => invoke(64 + index))
  await commitAll()
  for (const [outcome] of await Promise.all([...calls, ...late])) expect(outcome).not.toBeInstanceOf(Error)
  const lastCall = Math.max(...order.map((runId, index) => (runId.startsWith('call-') ? index : 0)))
  expect(lastCall).toBeLessThan(4 * MAX_STARTS_AHEAD)
  await many
})

it('64 callers of one domain need a commit for all of them, not one for each', async () => {
  const batches: number[] = []
  const queue = new GroupCommit<StartRequest, StartedRun>({
    name: 'starts',
    item: 'the start',
    logger: createLogger({ name: 'test', level: 'silent' }),
    maxItems: 1000,
    maxQueuedItems: 1000,
    maxInFlight: 2,
    async commit({ items }) {
      batches.push(items.length)
      await new Promise((resolve) => void setImmediate(resolve))
      return items.map(({ runId }) => ({ runId, runKey: 1, taskKey: 1 }))
    },
  })
  const starter = new RunStarter({
    knownTasks: { imageUrlOf: () => null },
    resolveImage: () => Promise.reject(new Error('no task has an image')),
    writer: { start: (request) => queue.submit(request) },
  })
  const caller = async (name: string) => {
    for (const submission of submissionsOf(name, 10))
      await starter.startMany({ id: 'task', domainId: 'a' }, [submission], () => undefined)
  }
  await Promise.all(Array.from({ length: 64 }, (_, index) => caller(`caller-${index}`)))
  expect(batches.reduce((sum, size) => sum + size, 0)).toBe(640)
  expect(batches.length).toBeLessThanOrEqual(20)
})

it('a start of one run waits for its turn, too', async () => {
  const { starter, order, queued, commitAll } = newStarter()
  const starts = submissionsOf('a', 300).map((submission) => starter.start({ id: 'task-a', domainId: 'a' }, submission))
  const [submission] = submissionsOf('b', 1) as [Submission]
  const other = starter.start({ id: 'task-b', domainId: 'b' }, submission)
  await new Promise((resolve) => void setImmediate(resolve))
  expect(queued).toHaveLength(MAX_STARTS_AHEAD + 1)
  expect(order.at(-1)).toBe('b-0')
  await commitAll()
  await Promise.all([...starts, other])
  expect(order).toHaveLength(301)
})

it('a start that resolves a reference does not count as one at the writer', async () => {
  const { promise: silence, resolve: answer } = Promise.withResolvers<never>()
  const started: string[] = []
  const starter = new RunStarter({
    knownTasks: { imageUrlOf: (taskId) => (taskId === 'image' ? 'registry.example/a:1' : null) },
    resolveImage: () => silence,
    writer: {
      start: ({ runId }) => {
        started.push(runId)
        return Promise.resolve({ runId, runKey: 1, taskKey: 1 })
      },
    },
  })
  const waiting = submissionsOf('slow', 200).map((submission) =>
    starter.start({ id: 'image', domainId: 'a' }, submission),
  )
  const many = starter.startMany({ id: 'image', domainId: 'a' }, submissionsOf('slow', 200), () => undefined)
  const [submission] = submissionsOf('fast', 1) as [Submission]
  await starter.start({ id: 'plain', domainId: 'a' }, submission)
  expect(started).toEqual(['fast-0'])
  answer(undefined as never)
  await Promise.all([...waiting, many])
})

it('each start of a call has its own outcome', async () => {
  const { starter, queued, commitAll } = newStarter()
  const three = starter.startMany({ id: 'task', domainId: null }, submissionsOf('n', 3), () => undefined)
  await new Promise((resolve) => void setImmediate(resolve))
  const [, second] = queued
  second?.commit(Promise.reject(new Error('no worker fits')) as never)
  queued.splice(1, 1)
  await commitAll()
  expect((await three).map((one) => (one instanceof Error ? one.message : one.runId))).toEqual([
    'n-0',
    'no worker fits',
    'n-2',
  ])
})

it('a reference that is not cached, or has changed, is resolved once for all starts of a call', async () => {
  const references = ['registry.example/a:1', 'registry.example/a:2']
  const resolved: string[] = []
  const refusals: number[] = []
  const started: unknown[] = []
  const starter = new RunStarter({
    knownTasks: { imageUrlOf: () => undefined },
    resolveImage: (imageUrl) => {
      resolved.push(imageUrl)
      return Promise.resolve({ imageUrl, digest: `sha256:${imageUrl}`, sizeBytes: 1, reference: imageUrl, notes: [] })
    },
    writer: {
      start: ({ runId, image }) => {
        if (image !== undefined && 'digest' in image && image.imageUrl === references[1]) {
          started.push(image.digest)
          return Promise.resolve({ runId, runKey: started.length, taskKey: 1 })
        }
        refusals.push(1)
        return Promise.reject(new UnresolvedImage(references[image === undefined ? 0 : 1] as string))
      },
    },
  })
  const outcomes = await starter.startMany({ id: 'task', domainId: 'a' }, submissionsOf('a', 60), () => undefined)
  expect(outcomes.filter((outcome) => outcome instanceof Error)).toEqual([])
  expect(started).toEqual(Array.from({ length: 60 }, () => `sha256:${references[1]}`))
  expect(resolved).toEqual(references)
  expect(refusals).toHaveLength(120)
})

it('a start fails when the reference changes at every attempt', async () => {
  let changes = 0
  const starter = new RunStarter({
    knownTasks: { imageUrlOf: () => undefined },
    resolveImage: (imageUrl) =>
      Promise.resolve({ imageUrl, digest: 'sha256:1', sizeBytes: 1, reference: imageUrl, notes: [] }),
    writer: { start: () => Promise.reject(new UnresolvedImage(`registry.example/a:${(changes += 1)}`)) },
  })
  const [submission] = submissionsOf('a', 1)
  await expect(starter.start({ id: 'task', domainId: 'a' }, submission as Submission)).rejects.toThrow('try again')
  expect(changes).toBe(3)
})
