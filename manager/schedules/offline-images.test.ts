// decision 0161: what a slow registry may delay
import { expect, test, vi } from 'vitest'
import { ServiceError } from '#core/errors/index.ts'
import type { ResolvedImage } from '../model/start.ts'
import { OfflineImages, isTransient } from './offline-images.ts'

const imageOf = (reference: string, digest = 'a'): ResolvedImage => ({
  imageUrl: reference,
  digest: `sha256:${digest.repeat(64)}`,
  sizeBytes: 1,
  reference,
  notes: [],
})
const taskOf = (key: number, domainId: string, version = 'v1') => ({
  key,
  version,
  domainId,
  reference: `registry.example/${domainId}`,
})
const ignore = () => undefined

test('a registry that never answers delays no other domain, and holds up a few places', async () => {
  const asked: string[] = []
  const images = new OfflineImages((reference, domainId) => {
    asked.push(String(domainId))
    return domainId === 'slow' ? new Promise(ignore) : Promise.resolve(imageOf(reference))
  })
  for (let key = 1; key <= 100; key++) expect(images.find(taskOf(key, 'slow'), ignore)).toBeUndefined()
  const onAnswer = vi.fn()
  const quick = taskOf(101, 'quick')
  expect(images.find(quick, onAnswer)).toBeUndefined()
  await vi.waitFor(() => expect(onAnswer).toHaveBeenCalledOnce(), 30_000)
  expect(images.find(quick, onAnswer)).toEqual(imageOf(quick.reference))
  expect(asked.filter((domain) => domain === 'slow')).toHaveLength(4)
})

test('a changed task is asked for again; the same one has its answer, which is renewed behind its back', async () => {
  let nowMs = 1
  let digest = 'a'
  const answers = vi.fn((reference: string) => Promise.resolve(imageOf(reference, digest)))
  const images = new OfflineImages(answers, () => nowMs)
  const task = taskOf(1, 'a domain')
  images.find(task, ignore)
  await vi.waitFor(() => expect(images.find(task, ignore)).toEqual(imageOf(task.reference, 'a')), 30_000)
  digest = 'b'
  expect(images.find(task, ignore)).toEqual(imageOf(task.reference, 'a'))
  expect(answers).toHaveBeenCalledTimes(1)
  nowMs += 60_000
  expect(images.find(task, ignore)).toEqual(imageOf(task.reference, 'a'))
  await vi.waitFor(() => expect(images.find(task, ignore)).toEqual(imageOf(task.reference, 'b')), 30_000)
  expect(images.find({ ...task, version: 'v2' }, ignore)).toBeUndefined()
  await vi.waitFor(() => expect(answers).toHaveBeenCalledTimes(3), 30_000)
})

test('a failure is returned once and not asked for again at once; one that passes leaves the known digest', async () => {
  let nowMs = 1
  let failure: Error | undefined = new ServiceError('unprocessable', 'no module')
  const resolve = vi.fn((reference: string) =>
    failure === undefined ? Promise.resolve(imageOf(reference)) : Promise.reject(failure),
  )
  const images = new OfflineImages(resolve, () => nowMs)
  const task = taskOf(1, 'a domain')
  const answered = async () => {
    const onAnswer = vi.fn()
    expect(images.find(task, onAnswer)).toBeUndefined()
    await vi.waitFor(() => expect(onAnswer).toHaveBeenCalledOnce(), 30_000)
    return images.find(task, ignore)
  }
  expect(await answered()).toBe(failure)
  expect(images.find(task, ignore)).toBeUndefined()
  expect(resolve).toHaveBeenCalledTimes(1)
  failure = undefined
  nowMs += 60_000
  expect(await answered()).toEqual(imageOf(task.reference))
  failure = new ServiceError('timeout', 'the registry did not answer')
  nowMs += 60_000
  const before = resolve.mock.settledResults.length
  expect(images.find(task, ignore)).toEqual(imageOf(task.reference))
  await vi.waitFor(() => expect(resolve.mock.settledResults.length).toBe(before + 1), 30_000)
  expect(images.find(task, ignore)).toEqual(imageOf(task.reference))
})

test.each(['unavailable', 'timeout', 'rate_limited'] as const)('an error of kind %s may pass', (kind) => {
  expect(isTransient(new ServiceError(kind, 'later'))).toBe(true)
})

test('a module that is none, and a fault of ours, do not pass', () => {
  expect(isTransient(new ServiceError('unprocessable', 'no module'))).toBe(false)
  expect(isTransient(new Error('a fault'))).toBe(false)
})
