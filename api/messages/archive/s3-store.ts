/** The archive in a bucket of an S3-compatible store: Amazon S3, MinIO, Ceph, Garage, R2 and others. */
import { createHash } from 'node:crypto'
import { escaped, parseDeletion, parseListing, parseUploads } from './s3-answers.ts'
import { partsOf, requestS3 } from './s3-client.ts'
import type { S3Answer, S3Request } from './s3-client.ts'
import { S3Error, isS3Exhausted, isUnsupported } from './s3-error.ts'
import type { S3Operation } from './s3-error.ts'
import type { S3Target } from './s3-target.ts'
import { S3Upload } from './s3-upload.ts'
import { ChangedByOther } from './store.ts'
import type { ArchiveStore, TextVersion } from './store.ts'

const MAX_FILE_BYTES = 128 * 1024 * 1024
/** A file is in memory whole where the store refuses uploads in pieces. */
const MAX_WHOLE_FILE_BYTES = 16 * 1024 * 1024
/** Stores accept 1000 keys in one deletion. */
const DELETED_AT_ONCE = 1000
const JSON_OR_DATA = { 'content-type': 'application/octet-stream' }

const WITHOUT_CONDITIONS =
  'the object store of the archive ignores conditional writes: if two installations begin in one empty place at the same moment, both write until the next look at the file owner'

type Request = (request: S3Request) => Promise<S3Answer>

export type S3StoreOptions = {
  target: S3Target
  /** Ends requests that wait. */
  signal?: AbortSignal | undefined
}

export function s3Store(options: S3StoreOptions): ArchiveStore {
  const { target, signal } = options
  const { request, put, sizeOf, abortUploads } = stepsOf(options)

  return {
    get maxFileBytes() {
      return target.lacks.has('multipart') ? MAX_WHOLE_FILE_BYTES : MAX_FILE_BYTES
    },
    beginFile: (url) => Promise.resolve(new S3Upload(target, url, { stepsOf, signal })),
    async writeNewFile(url, bytes) {
      await put(url, bytes)
    },
    async readText(url) {
      try {
        const { text, headers } = await request({ operation: 'GetObject', method: 'GET', url })
        return { text, version: versionOf(headers) }
      } catch (error) {
        if (isStatus(error, 404) && error.code !== 'NoSuchBucket') return undefined
        throw error
      }
    },
    async replaceText(url, text, before) {
      await replaceText(target, { url, text, before, put, readText: (of) => this.readText(of) })
    },
    sizeOf,
    async writtenAtMs(url) {
      const headers = await headersOf(request, url)
      if (headers === undefined) return undefined
      const ms = Date.parse(headers.get('last-modified') ?? '')
      // A file of unknown age is not deleted.
      return Number.isNaN(ms) ? Infinity : ms
    },
    namesIn: (url) => namesIn(request, url),
    async removeFiles(files) {
      const failed = new Map<string, unknown>()
      for (const { path } of files.filter(({ isPartial }) => isPartial))
        await abortUploads(path).catch((error: unknown) => {
          // The others would wait for the same.
          if (isS3Exhausted(error)) throw error
          failed.set(path, error)
        })
      signal?.throwIfAborted()
      const urls = files.map(({ path }) => path).filter((path) => !failed.has(path))
      for (let first = 0; first < urls.length; first += DELETED_AT_ONCE)
        await removeSome(target, request, urls.slice(first, first + DELETED_AT_ONCE), failed)
      return failed
    },
    async removeBegun(url, beforeMs, isOwn) {
      const { bucket } = partsOf(url)
      return await removeUploads(
        target,
        request,
        `${url}/`,
        ({ key, begunMs }) => begunMs < beforeMs && isOwn(`s3://${bucket}/${key}`),
      )
    },
    warningFor: () => Promise.resolve(target.hasConditions === false ? WITHOUT_CONDITIONS : undefined),
  }
}

function stepsOf({ target, signal }: S3StoreOptions) {
  const request: Request = (one) => requestS3(target, one, signal)
  const put = async (url: string, body: Uint8Array<ArrayBuffer>, headers: Readonly<Record<string, string>> = {}) =>
    void (await request({ operation: 'PutObject', method: 'PUT', url, body, headers: { ...JSON_OR_DATA, ...headers } }))

  const sizeOf = async (url: string) => {
    const headers = await headersOf(request, url)
    if (headers === undefined) return undefined
    const length = headers.get('content-length')
    if (length === null) throw new Error('the object store answered without the size of an object')
    return Number(length)
  }
  const abortUploads = async (url: string) => {
    await removeUploads(target, request, url, (upload) => upload.key === partsOf(url).key)
  }
  return { request, put, sizeOf, abortUploads }
}

/** Undefined: there is no such object. */
async function headersOf(request: Request, url: string): Promise<Headers | undefined> {
  try {
    return (await request({ operation: 'HeadObject', method: 'HEAD', url })).headers
  } catch (error) {
    if (!isStatus(error, 404)) throw error
    // The answer has no body: a bucket that is gone would look like a file that is.
    await request({ operation: 'HeadBucket', method: 'HEAD', url: `s3://${partsOf(url).bucket}` })
    return undefined
  }
}

/** Of a weak ETag, which a proxy makes, no condition holds. */
function versionOf(headers: Headers): TextVersion {
  const etag = headers.get('etag')
  return etag === null || etag.startsWith('W/') ? undefined : etag
}

function isStatus(error: unknown, status: number): error is S3Error {
  return error instanceof S3Error && error.status === status
}

async function ignoringMissing(work: Promise<unknown>): Promise<void> {
  try {
    await work
  } catch (error) {
    if (!isStatus(error, 404) || error.code === 'NoSuchBucket') throw error
  }
}

type Replacement = {
  url: string
  text: string
  before: { version: TextVersion } | undefined
  put: (url: string, body: Uint8Array<ArrayBuffer>, headers: Readonly<Record<string, string>>) => Promise<unknown>
  readText: ArchiveStore['readText']
}

/**
 * Stores differ in conditions: some refuse them, and some ignore them. The first replacement by a process asks with a condition that cannot
 * hold whether they are honoured; a store that ignores it has written what is to be written.
 */
async function replaceText(target: S3Target, { url, text, before, put, readText }: Replacement): Promise<void> {
  const body = new TextEncoder().encode(text)
  const type = { 'content-type': 'text/plain; charset=utf-8' }
  const attempt = async (condition: Readonly<Record<string, string>>): Promise<'written' | 'differs'> => {
    try {
      await put(url, body, { ...type, ...condition })
      return 'written'
    } catch (error) {
      if (isStatus(error, 412)) return 'differs'
      if (!isUnsupported(error)) throw error
      await put(url, body, type)
      target.hasConditions = false
      return 'written'
    }
  }
  if (target.hasConditions === false) {
    await put(url, body, type)
    return
  }
  if (before !== undefined && target.hasConditions === undefined) {
    if ((await attempt({ 'if-none-match': '*' })) === 'written') {
      // Or the file was removed meanwhile, which looks the same: to know less of the store is harmless.
      target.hasConditions = false
      return
    }
    target.hasConditions = true
  }
  const condition: Record<string, string> = before === undefined ? { 'if-none-match': '*' } : {}
  if (before?.version !== undefined) condition['if-match'] = before.version
  if ((await attempt(condition)) === 'written') return
  const now = await readText(url)
  // An earlier attempt was carried out, and its answer was lost.
  if (now?.text === text) return
  if (now !== undefined && now.version !== undefined && now.version === before?.version) {
    // Nobody has changed it: the store compares something else.
    target.hasConditions = false
    await put(url, body, type)
    return
  }
  throw new ChangedByOther('the file was changed by another writer')
}

async function* namesIn(request: Request, url: string): AsyncGenerator<{ name: string; isFolder: boolean }> {
  const { bucket, key } = partsOf(url)
  const prefix = key === '' ? '' : `${key}/`
  for await (const { files, folders } of pagesOf(request, bucket, prefix)) {
    for (const folder of folders)
      if (folder.startsWith(prefix)) yield { name: folder.slice(prefix.length).replace(/\/$/, ''), isFolder: true }
    for (const file of files)
      if (file.key.startsWith(prefix) && file.key !== prefix)
        yield { name: file.key.slice(prefix.length), isFolder: false }
  }
}

async function* pagesOf(request: Request, bucket: string, prefix: string) {
  for (let token: string | undefined; ;) {
    const { text } = await request({
      operation: 'ListObjectsV2',
      method: 'GET',
      url: `s3://${bucket}`,
      query: {
        'list-type': '2',
        prefix,
        delimiter: '/',
        'encoding-type': 'url',
        ...(token === undefined ? {} : { 'continuation-token': token }),
      },
    })
    const page = parseListing(text)
    yield page
    if (page.next === undefined) return
    if (page.next === token) throw new Error('the object store repeats a page of its listing')
    token = page.next
  }
}

/** Uploads in pieces that are not complete. Some stores, such as MinIO, list only those of a whole key. */
async function* uploadsBelow(target: S3Target, request: Request, url: string) {
  const { bucket, key: prefix } = partsOf(url)
  for (let after: { key: string; id: string } | undefined; !target.lacks.has('listing of uploads');) {
    let text: string
    try {
      const query: Record<string, string> = { uploads: '', prefix, 'encoding-type': 'url' }
      if (after !== undefined) Object.assign(query, { 'key-marker': after.key, 'upload-id-marker': after.id })
      ;({ text } = await request({
        operation: 'ListMultipartUploads',
        method: 'GET',
        url: `s3://${bucket}`,
        query,
      }))
    } catch (error) {
      if (!isUnsupported(error)) throw error
      target.lacks.add('listing of uploads')
      return
    }
    const { uploads, next } = parseUploads(text)
    for (const upload of uploads) if (upload.key.startsWith(prefix)) yield upload
    if (next === undefined) return
    if (next.key === after?.key && next.id === after.id)
      throw new Error('the object store repeats a page of its uploads')
    after = next
  }
}

/** Their number. */
async function removeUploads(
  target: S3Target,
  request: Request,
  url: string,
  isRemoved: (upload: { key: string; begunMs: number }) => boolean,
): Promise<number> {
  let removed = 0
  const { bucket } = partsOf(url)
  for await (const { key, id, begunMs } of uploadsBelow(target, request, url)) {
    // Without an id, the request would delete the object.
    if (id === '' || !isRemoved({ key, begunMs })) continue
    const one = { url: `s3://${bucket}/${key}`, query: { uploadId: id } }
    await ignoringMissing(request({ ...one, operation: 'AbortMultipartUpload', method: 'DELETE' }))
    removed += 1
  }
  return removed
}

async function removeSome(
  target: S3Target,
  request: Request,
  urls: readonly string[],
  failed: Map<string, unknown>,
): Promise<void> {
  if (urls.length > 1 && !target.lacks.has('batch deletion'))
    try {
      await removeBatch(request, urls, failed)
      return
    } catch (error) {
      if (!isUnsupported(error)) throw error
      target.lacks.add('batch deletion')
    }
  for (const url of urls)
    try {
      await ignoringMissing(request({ operation: 'DeleteObject', method: 'DELETE', url }))
    } catch (error) {
      if (!(error instanceof S3Error) || isS3Exhausted(error)) throw error
      failed.set(url, error)
    }
}

async function removeBatch(request: Request, urls: readonly string[], failed: Map<string, unknown>): Promise<void> {
  const operation: S3Operation = 'DeleteObjects'
  const byKey = new Map(urls.map((url) => [partsOf(url).key, url]))
  const objects = [...byKey.keys()].map((key) => `<Object><Key>${escaped(key)}</Key></Object>`)
  const body = Buffer.from(
    `<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Quiet>true</Quiet>${objects.join('')}</Delete>`,
  )
  const { bucket } = partsOf(urls[0] ?? '')
  const { text, status } = await request({
    operation,
    method: 'POST',
    url: `s3://${bucket}`,
    query: { delete: '' },
    body,
    // Stores require it here.
    headers: { 'content-md5': createHash('md5').update(body).digest('base64') },
  })
  for (const [key, code] of parseDeletion(text)) {
    const url = byKey.get(key)
    if (url !== undefined && code !== 'NoSuchKey')
      failed.set(url, new S3Error({ operation, status, code, isRepeated: false }))
  }
}
