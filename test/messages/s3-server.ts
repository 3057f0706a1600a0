/**
 * A small S3-compatible store that fails on demand. It compares the checksum of each body, requires pieces of one size, as R2 does, and answers
 * listings in small pages. It does not check signatures: the servers of test/history do.
 */
import { createHash, randomUUID } from 'node:crypto'
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Secret } from '#core/config/index.ts'
import type { S3Target } from '../../api/messages/archive/s3-target.ts'

export const ACCESS_KEY = 'AKIATESTACCESSKEY'
export const SECRET_KEY = 'a-secret-that-must-not-be-seen'
const BUCKET = 'bucket'

/** `lose`: done, but not answered. `drop`: neither. `hang`: neither, and the connection stays. `stall`: done, and the connection stays. */
export type Fault =
  | 'lose'
  | 'drop'
  | 'hang'
  | 'stall'
  | 'cut'
  | { status: number; code: string; headers?: Record<string, string> }
export type Call = { operation: string; key: string }

type Stored = { body: Buffer; etag: string; modifiedMs: number }
type Begun = { key: string; pieces: Map<number, Buffer>; begunMs: number }

export type S3Server = AsyncDisposable & {
  readonly url: string
  readonly target: S3Target
  readonly objects: Map<string, Stored>
  readonly uploads: Map<string, Begun>
  readonly calls: Call[]
  /** Asked before each request. */
  fault: (call: Call) => Fault | undefined
  ignoresConditions: boolean
  pageSize: number
}

type Reply = { status: number; body?: string | Buffer; headers?: Record<string, string> }

const ANSWERS: Readonly<Record<string, number>> = {
  NoSuchKey: 404,
  NoSuchUpload: 404,
  NoSuchBucket: 404,
  PreconditionFailed: 412,
  InvalidPart: 400,
  AccessDenied: 403,
  BadDigest: 400,
  XAmzContentSHA256Mismatch: 400,
}

/** As stores write it: with what must not be repeated. */
const errorOf = (code: string, status = ANSWERS[code] ?? 400): Reply => ({
  status,
  body: `<?xml version="1.0"?>\n<Error><Code>${code}</Code><Message>${SECRET_KEY}</Message><AWSAccessKeyId>${ACCESS_KEY}</AWSAccessKeyId></Error>`,
})

function operationOf(method: string, key: string, query: URLSearchParams): string {
  if (query.has('uploads')) return method === 'POST' ? 'CreateMultipartUpload' : 'ListMultipartUploads'
  if (query.has('delete')) return 'DeleteObjects'
  if (query.has('uploadId'))
    return { PUT: 'UploadPart', POST: 'CompleteMultipartUpload', DELETE: 'AbortMultipartUpload' }[method] ?? method
  if (key === '') return method === 'HEAD' ? 'HeadBucket' : 'ListObjectsV2'
  return { PUT: 'PutObject', GET: 'GetObject', HEAD: 'HeadObject', DELETE: 'DeleteObject' }[method] ?? method
}

const hash = (algorithm: string, body: Buffer, encoding: 'hex' | 'base64' = 'hex') =>
  createHash(algorithm).update(body).digest(encoding)

export async function startS3Server(): Promise<S3Server> {
  const http = createServer((request, response) => void serve(store, request, response))
  await new Promise<void>((resolve) => http.listen(0, '127.0.0.1', resolve))
  const endpoint = `http://127.0.0.1:${(http.address() as AddressInfo).port}`
  const store: S3Server = {
    url: `s3://${BUCKET}/some/prefix`,
    target: {
      endpoint,
      region: 'test-1',
      isPathStyle: true,
      accessKey: new Secret(ACCESS_KEY),
      secretKey: new Secret(SECRET_KEY),
      lacks: new Set(),
      retry: { attemptMs: 30_000, pieceMs: 30_000, deadlineMs: 30_000, pauseMs: 1, giveUpMs: 30_000 },
    },
    objects: new Map(),
    uploads: new Map(),
    calls: [],
    fault: () => undefined,
    ignoresConditions: false,
    pageSize: 2,
    async [Symbol.asyncDispose]() {
      http.closeAllConnections()
      await new Promise((resolve) => http.close(resolve))
    },
  }
  return store
}

async function serve(store: S3Server, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const pieces: Buffer[] = []
  try {
    for await (const piece of request) pieces.push(piece as Buffer)
  } catch {
    return
  }
  const address = new URL(request.url ?? '', 'http://store')
  const [, bucket, ...rest] = address.pathname.split('/')
  const key = decodeURIComponent(rest.join('/'))
  const operation = operationOf(request.method ?? '', key, address.searchParams)
  const call = { operation, key }
  store.calls.push(call)
  const fault = store.fault(call)
  if (fault === 'hang') return
  if (fault === 'drop') return void request.socket.destroy()
  let reply: Reply
  if (typeof fault === 'object') reply = { ...errorOf(fault.code, fault.status), headers: fault.headers ?? {} }
  else
    reply =
      bucket === BUCKET
        ? perform(store, request, { ...call, query: address.searchParams, body: Buffer.concat(pieces) })
        : errorOf('NoSuchBucket')
  if (fault === 'stall') return
  if (fault === 'lose') return void request.socket.destroy()
  const body = Buffer.from(reply.body ?? '')
  response.writeHead(reply.status, { 'content-length': body.length, ...reply.headers })
  if (fault === 'cut') return void response.write(body.subarray(0, 1), () => request.socket.destroy())
  response.end(request.method === 'HEAD' ? undefined : body)
}

type Asked = Call & { query: URLSearchParams; body: Buffer }

function perform(store: S3Server, { headers }: IncomingMessage, asked: Asked): Reply {
  const { body, operation, key, query } = asked
  if (!(headers.authorization ?? '').startsWith(`AWS4-HMAC-SHA256 Credential=${ACCESS_KEY}/`))
    return errorOf('AccessDenied')
  if (headers['x-amz-content-sha256'] !== hash('sha256', body)) return errorOf('XAmzContentSHA256Mismatch')
  const { objects } = store
  const found = objects.get(key)
  switch (operation) {
    case 'PutObject': {
      const isWanted = headers['if-none-match'] === undefined || found === undefined
      const isSame = headers['if-match'] === undefined || headers['if-match'] === found?.etag
      if (!store.ignoresConditions && !(isWanted && isSame)) return errorOf('PreconditionFailed')
      const etag = `"${hash('md5', body)}"`
      objects.set(key, { body, etag, modifiedMs: Date.now() })
      return { status: 200, headers: { etag } }
    }
    case 'GetObject':
    case 'HeadObject': {
      if (found === undefined) return errorOf('NoSuchKey')
      const known = { etag: found.etag, 'last-modified': new Date(found.modifiedMs).toUTCString() }
      return { status: 200, body: found.body, headers: known }
    }
    case 'HeadBucket':
      return { status: 200 }
    case 'DeleteObject':
      objects.delete(key)
      return { status: 204 }
    case 'DeleteObjects':
      if (headers['content-md5'] !== hash('md5', body, 'base64')) return errorOf('BadDigest')
      for (const [, one = ''] of body.toString().matchAll(/<Key>(.*?)<\/Key>/g)) objects.delete(one)
      return { status: 200, body: '<DeleteResult></DeleteResult>' }
    case 'ListObjectsV2':
      return list(store, query)
    default:
      return performUpload(store, asked)
  }
}

function list({ objects, pageSize }: S3Server, query: URLSearchParams): Reply {
  const [prefix, after] = [query.get('prefix') ?? '', query.get('continuation-token') ?? '']
  const names = new Set<string>()
  for (const key of objects.keys()) {
    if (!key.startsWith(prefix)) continue
    const end = key.indexOf('/', prefix.length)
    names.add(end === -1 ? key : key.slice(0, end + 1))
  }
  const behind = [...names].filter((name) => name > after).toSorted()
  const page = behind.slice(0, pageSize)
  const entries = page.map((name) =>
    name.endsWith('/')
      ? `<CommonPrefixes><Prefix>${encodeURIComponent(name)}</Prefix></CommonPrefixes>`
      : `<Contents><Key>${encodeURIComponent(name)}</Key><Size>${objects.get(name)?.body.length}</Size></Contents>`,
  )
  const isMore = behind.length > page.length
  const next = isMore ? `<NextContinuationToken>${page.at(-1)}</NextContinuationToken>` : ''
  return {
    status: 200,
    body: `<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>${isMore}</IsTruncated>${next}${entries.join('')}</ListBucketResult>`,
  }
}

function performUpload(store: S3Server, { operation, key, query, body }: Asked): Reply {
  const { uploads, objects } = store
  const id = query.get('uploadId') ?? ''
  const begun = uploads.get(id)
  switch (operation) {
    case 'CreateMultipartUpload': {
      const made = randomUUID()
      uploads.set(made, { key, pieces: new Map(), begunMs: Date.now() })
      return {
        status: 200,
        body: `<InitiateMultipartUploadResult><UploadId>${made}</UploadId></InitiateMultipartUploadResult>`,
      }
    }
    case 'ListMultipartUploads': {
      const [prefix, after] = [query.get('prefix') ?? '', query.get('upload-id-marker') ?? '']
      const listed = [...uploads]
        .filter(([, one]) => one.key.startsWith(prefix))
        .toSorted(([a], [b]) => (a < b ? -1 : 1))
      const behind = listed.filter(([one]) => one > after)
      const page = behind.slice(0, store.pageSize)
      const last = page.at(-1)
      const isMore = behind.length > page.length
      const next = `<NextKeyMarker>${last?.[1].key ?? ''}</NextKeyMarker><NextUploadIdMarker>${last?.[0] ?? ''}</NextUploadIdMarker>`
      const entries = page.map(
        ([one, { key: of, begunMs }]) =>
          `<Upload><Key>${of}</Key><UploadId>${one}</UploadId><Initiated>${new Date(begunMs).toISOString()}</Initiated></Upload>`,
      )
      return {
        status: 200,
        body: `<R><IsTruncated>${isMore}</IsTruncated>${isMore ? next : ''}${entries.join('')}</R>`,
      }
    }
    case 'UploadPart':
      if (begun === undefined) return errorOf('NoSuchUpload')
      begun.pieces.set(Number(query.get('partNumber')), body)
      return { status: 200, headers: { etag: `"${hash('md5', body)}"` } }
    case 'CompleteMultipartUpload': {
      if (begun === undefined) return errorOf('NoSuchUpload')
      const named = [...body.toString().matchAll(/<PartNumber>(\d+)<\/PartNumber><ETag>(.*?)<\/ETag>/g)]
      const bodies = named.map(([, number]) => begun.pieces.get(Number(number)) ?? Buffer.alloc(0))
      const isRight = named.every(([, , etag], index) => etag === `"${hash('md5', bodies[index] ?? Buffer.alloc(0))}"`)
      if (!isRight || bodies.slice(0, -1).some(({ length }) => length !== bodies[0]?.length))
        return errorOf('InvalidPart')
      const whole = Buffer.concat(bodies)
      objects.set(begun.key, { body: whole, etag: `"${hash('md5', whole)}-${bodies.length}"`, modifiedMs: Date.now() })
      uploads.delete(id)
      return { status: 200, body: '<CompleteMultipartUploadResult></CompleteMultipartUploadResult>' }
    }
    case 'AbortMultipartUpload':
      uploads.delete(id)
      return { status: 204 }
    default:
      return errorOf('NotImplemented', 501)
  }
}
