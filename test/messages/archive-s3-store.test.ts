/** An S3-compatible store that fails, is slow, loses answers and refuses what others offer (decision 0160). */
import { inspect } from 'node:util'
import { readConfig } from '#core/config/index.ts'
import type { Environment } from '#core/config/index.ts'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { isStoreExhausted, s3TargetOf, storeFailure } from '../../api/messages/archive/open-store.ts'
import { ARCHIVE_SETTINGS } from '../../api/messages/archive/config.ts'
import { s3Store } from '../../api/messages/archive/s3-store.ts'
import { ChangedByOther, sizesOf } from '../../api/messages/archive/store.ts'
import type { ArchiveStore } from '../../api/messages/archive/store.ts'
import { until } from '../harness/until.ts'
import { ACCESS_KEY, SECRET_KEY, startS3Server } from './s3-server.ts'
import type { Fault, S3Server } from './s3-server.ts'

const PIECE = 1000
let server: S3Server
let store: ArchiveStore
beforeEach(async () => {
  server = await startS3Server()
  server.target.pieceBytes = PIECE
  store = s3Store({ target: server.target })
})
afterEach(async () => await server[Symbol.asyncDispose]())

const bytes = (length: number, seed = 1) => Uint8Array.from({ length }, (_, index) => (index * 7 + seed) % 251)
const urlOf = (name: string) => `${server.url}/${name}`
const keyOf = (name: string) => `some/prefix/${name}`
const calls = (operation: string) => server.calls.filter((call) => call.operation === operation).length
/** Fails the first so many requests of the operation. */
const failing = (operation: string, fault: Fault, times = 1) => {
  let left = times
  server.fault = (call) => (call.operation === operation && left-- > 0 ? fault : undefined)
}

async function writeData(name: string, length: number): Promise<void> {
  const file = await store.beginFile(urlOf(name))
  const whole = bytes(length)
  for (let at = 0; at < length; at += 700) await file.write(whole.slice(at, Math.min(at + 700, length)))
  await file.close()
}

const stored = (name: string) => new Uint8Array(server.objects.get(keyOf(name))?.body ?? [])

async function errorOf(work: Promise<unknown>): Promise<Error> {
  try {
    await work
  } catch (error) {
    return error as Error
  }
  throw new Error('nothing was thrown')
}

test.each([0, 1, 999, 1000, 1001, 2000, 5300])('a data file of %d bytes arrives as it was written', async (length) => {
  await writeData('file', length)
  expect(stored('file')).toEqual(bytes(length))
  expect(server.uploads.size).toBe(0)
  expect(calls('UploadPart')).toBe(length < PIECE ? 0 : Math.ceil(length / PIECE))
})

test.each<[string, Fault, number]>([
  ['CreateMultipartUpload', 'lose', 1],
  ['CreateMultipartUpload', 'drop', 2],
  ['UploadPart', 'lose', 1],
  ['UploadPart', { status: 503, code: 'SlowDown' }, 3],
  ['UploadPart', { status: 400, code: 'RequestTimeout' }, 1],
  ['CompleteMultipartUpload', 'lose', 1],
  ['CompleteMultipartUpload', 'drop', 1],
  ['CompleteMultipartUpload', { status: 200, code: 'InternalError' }, 2],
  ['HeadObject', { status: 500, code: '' }, 1],
])('a file is whole, and nothing is left over, after %s met %j %d times', async (operation, fault, times) => {
  failing(operation, fault, times)
  await writeData('file', 3500)
  expect(stored('file')).toEqual(bytes(3500))
  expect(server.uploads.size).toBe(0)
  expect(calls(operation)).toBeGreaterThan(times)
})

test.each<[string, Fault]>([
  ['PutObject', 'lose'],
  ['PutObject', 'drop'],
  ['GetObject', 'cut'],
  ['PutObject', { status: 429, code: 'TooManyRequests', headers: { 'retry-after': '0' } }],
])('a small file survives that %s meets %j', async (operation, fault) => {
  failing(operation, fault)
  await store.writeNewFile(urlOf('small'), bytes(10))
  expect((await store.readText(urlOf('small')))?.text).toBe(Buffer.from(bytes(10)).toString())
})

test('a store that does not answer is given up, and a stop does not wait for it', async () => {
  server.fault = () => 'hang'
  server.target.retry = { attemptMs: 20, pieceMs: 20, deadlineMs: 100, pauseMs: 1, giveUpMs: 20 }
  const error = await errorOf(store.writeNewFile(urlOf('small'), bytes(10)))
  expect(storeFailure(error)).toBe('it does not answer (no answer in time)')
  expect(isStoreExhausted(error)).toBe(true)
  server.target.retry = { attemptMs: 600_000, pieceMs: 600_000, deadlineMs: 600_000, pauseMs: 1, giveUpMs: 20 }
  const stopping = new AbortController()
  const waiting = s3Store({ target: server.target, signal: stopping.signal }).sizeOf(urlOf('small'))
  stopping.abort(new Error('stopped'))
  await expect(waiting).rejects.toThrow('stopped')
})

test('a failed file is given up: no piece of it stays in the store', async () => {
  const file = await store.beginFile(urlOf('file'))
  await file.write(bytes(2500))
  server.fault = ({ operation }) =>
    operation === 'UploadPart' ? { status: 507, code: 'XMinioStorageFull' } : undefined
  const error = await errorOf(file.write(bytes(2500)))
  expect(storeFailure(error)).toBe('it is full (507 XMinioStorageFull UploadPart)')
  expect(isStoreExhausted(error)).toBe(true)
  expect(server.uploads.size).toBe(1)
  await file.abort()
  expect(server.uploads.size).toBe(0)
  expect(server.objects.size).toBe(0)
})

test('what could not be given up at once is given up with the file, and after a day', async () => {
  for (const name of ['one', 'two', 'three', 'four', 'five']) {
    const file = await store.beginFile(urlOf(name))
    await file.write(bytes(PIECE))
  }
  expect(server.uploads.size).toBe(5)
  const removed = await store.removeFiles([{ path: urlOf('one'), isPartial: true }])
  expect([removed.size, server.uploads.size]).toEqual([0, 4])
  const isOwn = (path: string) => path !== urlOf('three')
  expect(await store.removeBegun(server.url, Date.now() - 60_000, isOwn)).toBe(0)
  expect(await store.removeBegun(server.url, Date.now() + 60_000, isOwn)).toBe(3)
  expect([...server.uploads.values()].map(({ key }) => key)).toEqual([keyOf('three')])
})

test.each<[string, Fault]>([
  ['CreateMultipartUpload', 'stall'],
  ['UploadPart', 'stall'],
  ['UploadPart', 'hang'],
])('a file that is given up while %s meets %s leaves nothing behind', async (operation, fault) => {
  const file = await store.beginFile(urlOf('file'))
  server.fault = (call) => (call.operation === operation ? fault : undefined)
  const writing = errorOf(file.write(bytes(3500)))
  await until(() => server.uploads.size === 1 && calls(operation) === 1, 'the request', 60_000)
  await file.abort()
  expect((await writing).message).toBe('the file was given up')
  expect(server.uploads.size).toBe(0)
  await expect(file.write(bytes(3500))).rejects.toThrow('the file was given up')
  expect([calls(operation), server.uploads.size]).toEqual([1, 0])
})

test('to give up a file takes no longer than its time, whatever the store does', async () => {
  server.fault = ({ operation }) => (operation === 'CreateMultipartUpload' ? 'lose' : 'hang')
  const file = await store.beginFile(urlOf('file'))
  server.target.retry = { attemptMs: 600_000, pieceMs: 600_000, deadlineMs: 0, pauseMs: 1, giveUpMs: 20 }
  expect(await errorOf(file.write(bytes(3500)))).toMatchObject({ operation: 'CreateMultipartUpload', status: 0 })
  server.target.retry.deadlineMs = 600_000
  await file.abort()
  expect(server.uploads.size).toBe(1)
})

test('a deletion ends with the first file of a store that does not answer', async () => {
  server.target.retry = { attemptMs: 20, pieceMs: 20, deadlineMs: 0, pauseMs: 1, giveUpMs: 20 }
  server.fault = () => 'hang'
  const files = ['one', 'two', 'three'].map((name) => ({ path: urlOf(name), isPartial: true }))
  const error = await errorOf(store.removeFiles(files))
  expect(isStoreExhausted(error)).toBe(true)
  expect(server.calls).toHaveLength(1)
})

test('an upload without an id, and a key that an address would change, are left alone', async () => {
  await store.writeNewFile(urlOf('file'), bytes(1))
  server.uploads.set('', { key: keyOf('file'), pieces: new Map(), begunMs: 0 })
  server.uploads.set('other', { key: keyOf('x/../file'), pieces: new Map(), begunMs: 0 })
  server.pageSize = 10
  const isOwn = (path: string) => path === urlOf('file')
  expect(await store.removeBegun(server.url, Date.now(), isOwn)).toBe(0)
  expect(server.calls.map(({ operation }) => operation)).toEqual(['PutObject', 'ListMultipartUploads'])
  for (const name of ['x/../file', './file', 'file?delete', 'file#', 'file%2F', 'file name'])
    await expect(store.sizeOf(urlOf(name))).rejects.toThrow()
  expect(calls('HeadObject')).toBe(0)
})

test('an answer without an end is not read, and not asked for again', async () => {
  server.objects.set(keyOf('owner'), { body: Buffer.alloc(9 * 1024 * 1024), etag: '""', modifiedMs: 0 })
  const error = await errorOf(store.readText(urlOf('owner')))
  expect(storeFailure(error)).toBe('it does not answer as an object store does (the answer is too long)')
  expect(calls('GetObject')).toBe(1)
})

test('clocks that differ are named, also where an answer has no code', async () => {
  const early = new Date(Date.now() - 3_600_000).toUTCString()
  server.fault = () => ({ status: 403, code: '', headers: { date: early } })
  expect(storeFailure(await errorOf(store.sizeOf(urlOf('file'))))).toBe(
    'its clock and that of this machine differ (403 RequestTimeTooSkewed HeadObject)',
  )
  server.fault = () => ({ status: 403, code: '' })
  expect(storeFailure(await errorOf(store.sizeOf(urlOf('file'))))).toBe('it refuses the keys (403 HeadObject)')
})

test.each([
  [{ SKEIN_ARCHIVE_S3_ACCESS_KEY: `${ACCESS_KEY}\nx` }, 'SKEIN_ARCHIVE_S3_ACCESS_KEY must be'],
  [{ SKEIN_ARCHIVE_S3_ACCESS_KEY: `${ACCESS_KEY}\u20ac` }, 'SKEIN_ARCHIVE_S3_ACCESS_KEY must be'],
  [{ SKEIN_ARCHIVE_S3_PATH_STYLE: 'false', SKEIN_ARCHIVE_S3_ENDPOINT: 'http://127.0.0.1:1' }, 'must be true when'],
  [{ SKEIN_ARCHIVE_S3_PATH_STYLE: 'false', SKEIN_ARCHIVE_S3_ENDPOINT: 'http://[::1]:1' }, 'must be true when'],
  [{ SKEIN_ARCHIVE_S3_ENDPOINT: 'https://example.com/path' }, 'an address such as'],
  [{ SKEIN_ARCHIVE_S3_ENDPOINT: 'https://key:secret@example.com' }, 'an address such as'],
  [{ SKEIN_ARCHIVE_S3_ENDPOINT: 'https://example.com?x=1' }, 'an address such as'],
  [{ SKEIN_ARCHIVE_S3_ENDPOINT: 's3://example.com' }, 'an address such as'],
])('settings %j are refused without their secrets', async (changed, words) => {
  const given = {
    SKEIN_ARCHIVE_URL: server.url,
    SKEIN_ARCHIVE_S3_ACCESS_KEY: ACCESS_KEY,
    SKEIN_ARCHIVE_S3_SECRET_KEY: SECRET_KEY,
  }
  const target = (environment: Environment) => s3TargetOf(readConfig(ARCHIVE_SETTINGS, environment))
  expect(target(given)?.endpoint).toBe('https://s3.us-east-1.amazonaws.com')
  const { message } = await errorOf((async () => target({ ...given, ...changed }))())
  expect(message).toContain(words)
  for (const secret of [ACCESS_KEY, SECRET_KEY]) expect(message).not.toContain(secret)
})

test.each([400, 405, 501])(
  'a store that refuses uploads in pieces with %d gets files whole, and shorter ones',
  async (status) => {
    const longest = store.maxFileBytes
    server.fault = ({ operation }) =>
      operation === 'CreateMultipartUpload' ? { status, code: 'NotImplemented' } : undefined
    await writeData('file', 3500)
    await writeData('next', 2500)
    expect(stored('file')).toEqual(bytes(3500))
    expect(stored('next')).toEqual(bytes(2500))
    expect(calls('CreateMultipartUpload')).toBe(1)
    expect(store.maxFileBytes).toBeLessThan(longest)
  },
)

test('a file that arrives in part is an error', async () => {
  server.fault = ({ operation, key }) => {
    const found = server.objects.get(key)
    if (operation === 'HeadObject' && found !== undefined) found.body = found.body.subarray(1)
    return undefined
  }
  await expect(writeData('file', 3500)).rejects.toThrow('has 3499 bytes of a file of 3500')
})

test('folders and files are listed in pages', async () => {
  const names = ['a/1', 'a/2', 'b=2026-11/1', 'c', 'd', 'e&<f', 'g']
  for (const name of names) server.objects.set(keyOf(name), { body: Buffer.from('x'), etag: '""', modifiedMs: 0 })
  server.objects.set('some/prefix-of-another/x', { body: Buffer.from('x'), etag: '""', modifiedMs: 0 })
  const found = []
  for await (const { name, isFolder } of store.namesIn(server.url)) found.push(isFolder ? `${name}/` : name)
  expect(found.toSorted()).toEqual(['a/', 'b=2026-11/', 'c', 'd', 'e&<f', 'g'])
  expect(calls('ListObjectsV2')).toBe(3)
  const none = []
  for await (const { name } of store.namesIn(urlOf('missing'))) none.push(name)
  expect(none).toEqual([])
})

test('files are deleted in batches, one by one where batches are refused, and what fails is named', async () => {
  const names = Array.from({ length: 5 }, (_, index) => `file${index}`)
  const files = names.map((name) => ({ path: urlOf(name), isPartial: false }))
  for (const name of names) await store.writeNewFile(urlOf(name), bytes(1))
  failing('DeleteObjects', 'lose')
  expect((await store.removeFiles(files)).size).toBe(0)
  expect([calls('DeleteObjects'), calls('DeleteObject'), server.objects.size]).toEqual([2, 0, 0])
  for (const name of names) await store.writeNewFile(urlOf(name), bytes(1))
  server.fault = ({ operation, key }) => {
    if (operation === 'DeleteObjects') return { status: 501, code: 'NotImplemented' }
    return operation === 'DeleteObject' && key.endsWith('3') ? { status: 403, code: 'AccessDenied' } : undefined
  }
  const failed = await store.removeFiles(files)
  expect([...failed.keys()]).toEqual([urlOf('file3')])
  expect(storeFailure(failed.get(urlOf('file3')))).toBe('it refuses the keys (403 AccessDenied DeleteObject)')
  expect([...server.objects.keys()]).toEqual([keyOf('file3')])
})

test('a missing file differs from a missing bucket, and from a store that fails', async () => {
  await store.writeNewFile(urlOf('there'), bytes(12))
  expect(await sizesOf(store, [urlOf('there'), urlOf('missing')])).toEqual([{ size: 12 }, { size: undefined }])
  expect(await store.readText(urlOf('missing'))).toBeUndefined()
  expect(await store.writtenAtMs(urlOf('missing'))).toBeUndefined()
  await expect(store.sizeOf('s3://other/file')).rejects.toThrow('404')
  await expect(store.readText('s3://other/file')).rejects.toThrow('404 NoSuchBucket')
  server.fault = () => ({ status: 403, code: 'AccessDenied' })
  const [found] = await sizesOf(store, [urlOf('there')])
  expect(found).toHaveProperty('error')
})

const replace = async (text: string) => {
  const before = await store.readText(urlOf('owner'))
  await store.replaceText(urlOf('owner'), text, before)
}

test('a word is written under the condition that nobody wrote another one', async () => {
  await replace('first')
  await replace('second')
  await replace('third')
  expect(server.target.hasConditions).toBe(true)
  const before = await store.readText(urlOf('owner'))
  await store.replaceText(urlOf('owner'), 'other', before)
  await expect(store.replaceText(urlOf('owner'), 'late', before)).rejects.toBeInstanceOf(ChangedByOther)
  await expect(store.replaceText(urlOf('owner'), 'late', undefined)).rejects.toBeInstanceOf(ChangedByOther)
  expect(stored('owner')).toEqual(new Uint8Array(Buffer.from('other')))
  // The condition of the repetition fails because the first attempt was carried out.
  failing('PutObject', 'lose')
  await replace('lost')
  expect(stored('owner')).toEqual(new Uint8Array(Buffer.from('lost')))
  expect(await store.warningFor(server.url)).toBeUndefined()
})

test('a store that ignores conditions, or refuses them, is seen and named', async () => {
  server.ignoresConditions = true
  await replace('first')
  await replace('second')
  expect(server.target.hasConditions).toBe(false)
  expect(await store.warningFor(server.url)).toContain('ignores conditional writes')
  await replace('third')
  expect((await store.readText(urlOf('owner')))?.text).toBe('third')
  delete server.target.hasConditions
  let refusals = 0
  server.fault = ({ operation }) =>
    operation === 'PutObject' && refusals++ === 0 ? { status: 501, code: 'NotImplemented' } : undefined
  await replace('fourth')
  expect((await store.readText(urlOf('owner')))?.text).toBe('fourth')
  expect(server.target.hasConditions).toBe(false)
})

test('a store whose comparison fails for what nobody has changed is written to all the same', async () => {
  await replace('first')
  server.target.hasConditions = true
  let refusals = 0
  server.fault = ({ operation }) =>
    operation === 'PutObject' && refusals++ === 0 ? { status: 412, code: 'PreconditionFailed' } : undefined
  await replace('second')
  expect((await store.readText(urlOf('owner')))?.text).toBe('second')
  expect(server.target.hasConditions).toBe(false)
})

test('no error repeats keys, or what the store says of them', async () => {
  for (const code of ['SignatureDoesNotMatch', 'InvalidAccessKeyId', `${SECRET_KEY}`, 'A'.repeat(100)]) {
    server.fault = () => ({ status: 403, code })
    for (const work of [
      () => store.writeNewFile(urlOf('x'), bytes(1)),
      () => store.readText(urlOf('x')),
      () => writeData('y', 1500),
    ]) {
      const error = await errorOf(work())
      const seen = inspect(error, { depth: 10, showHidden: true }) + String(storeFailure(error)) + JSON.stringify(error)
      expect(seen).not.toContain(SECRET_KEY)
      expect(seen).not.toContain(ACCESS_KEY)
    }
  }
  expect(inspect(server.target, { depth: 10 })).not.toContain(SECRET_KEY)
})

test.each([
  [404, 'NoSuchBucket', 'the bucket does not exist (404 NoSuchBucket PutObject)'],
  [403, 'RequestTimeTooSkewed', 'its clock and that of this machine differ (403 RequestTimeTooSkewed PutObject)'],
  [301, 'PermanentRedirect', 'the bucket is in another region, or elsewhere (301 PermanentRedirect PutObject)'],
  [400, 'EntityTooLarge', 'it refuses a request (400 EntityTooLarge PutObject)'],
])('%d %s is described, and not repeated', async (status, code, words) => {
  server.fault = () => ({ status, code })
  expect(storeFailure(await errorOf(store.writeNewFile(urlOf('x'), bytes(1))))).toBe(words)
  expect(calls('PutObject')).toBe(1)
})
