/**
 * A registry on 127.0.0.1 for tests: serves what was put into it as the OCI distribution specification says, remembers
 * every request, and misbehaves where a test puts a handler in the way.
 */
import { createHash } from 'node:crypto'
import { createServer } from 'node:http'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export const WASM = Buffer.from('\0asm\x01\0\0\0', 'latin1')

export type Seen = {
  method: string
  path: string
  authorization: string | undefined
  range: string | undefined
  encoding: string | undefined
}
/** Answers the request and returns true, or returns false and lets the registry answer. */
export type Interception = (
  request: IncomingMessage,
  response: ServerResponse,
  path: string,
) => boolean | Promise<boolean>

export type TestRegistry = AsyncDisposable & {
  host: string
  port: number
  seen: Seen[]
  /** Requests whose path has this in it. */
  count(part: string): number
  /** Stores a blob and gives its descriptor. */
  blob(bytes: Buffer, mediaType: string): { mediaType: string; digest: string; size: number }
  /** Stores a manifest or index under its digest and, when given, a tag. */
  manifest(repository: string, tag: string | undefined, body: object, contentType?: string): string
  /** A module in the CNCF layout under a tag. */
  module(
    repository: string,
    tag: string,
    bytes: Buffer,
    layerType?: string,
    configType?: string,
  ): { manifestDigest: string; moduleDigest: string }
  /** Puts a handler before everything else. */
  intercept(interception: Interception): void
  close(): Promise<void>
}

export const OCI_MANIFEST = 'application/vnd.oci.image.manifest.v1+json'
export const OCI_INDEX = 'application/vnd.oci.image.index.v1+json'

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`
}

/** A valid header of a module and then so many bytes that no compression makes smaller. */
export function wasmOf(sizeBytes: number, seed = 1): Buffer {
  const bytes = Buffer.alloc(sizeBytes)
  for (let position = 0, state = seed; position + 4 <= sizeBytes; position += 4) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    bytes.writeUInt32LE(state, position)
  }
  WASM.copy(bytes)
  return bytes
}

export async function startRegistry(): Promise<TestRegistry> {
  const blobs = new Map<string, Buffer>()
  const manifests = new Map<string, { bytes: Buffer; contentType: string; digest: string }>()
  const seen: Seen[] = []
  const interceptions: Interception[] = []

  function serve(request: IncomingMessage, response: ServerResponse, path: string): void {
    const match = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(path)
    if (path === '/v2/') return void response.writeHead(200).end('{}')
    const [, repository = '', kind, key = ''] = match ?? []
    if (kind === 'manifests') {
      const found = manifests.get(`${repository}@${key}`)
      if (found === undefined || !isNamed(found.contentType, request.headers.accept))
        return void response.writeHead(404).end('{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
      response
        .writeHead(200, { 'content-type': found.contentType, 'docker-content-digest': found.digest })
        .end(found.bytes)
      return
    }
    const bytes = kind === 'blobs' ? blobs.get(key) : undefined
    if (bytes === undefined) return void response.writeHead(404).end()
    sendBytes(request, response, bytes)
  }

  const server = createServer((request, response) => {
    const path = new URL(request.url ?? '/', 'http://registry').pathname
    const { authorization, range, 'accept-encoding': encoding } = request.headers
    seen.push({ method: request.method ?? '', path, authorization, range, encoding: String(encoding) })
    const answer = async (): Promise<void> => {
      for (const interception of interceptions) if (await interception(request, response, path)) return
      serve(request, response, path)
    }
    // Who asked may hang up in the middle of what it sends.
    answer().catch(() => response.destroy())
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const { port } = server.address() as AddressInfo

  const registry: TestRegistry = {
    host: `127.0.0.1:${port}`,
    port,
    seen,
    count: (part) => seen.filter((one) => one.path.includes(part)).length,
    blob(bytes, mediaType) {
      const digest = digestOf(bytes)
      blobs.set(digest, bytes)
      return { mediaType, digest, size: bytes.length }
    },
    manifest(repository, tag, body, contentType = OCI_MANIFEST) {
      const bytes = Buffer.from(JSON.stringify(body))
      const stored = { bytes, contentType, digest: digestOf(bytes) }
      manifests.set(`${repository}@${stored.digest}`, stored)
      if (tag !== undefined) manifests.set(`${repository}@${tag}`, stored)
      return stored.digest
    },
    module(repository, tag, bytes, layerType = 'application/wasm', configType = 'application/vnd.wasm.config.v0+json') {
      const config = registry.blob(Buffer.from('{}'), configType)
      const layer = registry.blob(bytes, layerType)
      const manifestDigest = registry.manifest(repository, tag, {
        schemaVersion: 2,
        mediaType: OCI_MANIFEST,
        config,
        layers: [layer],
      })
      return { manifestDigest, moduleDigest: layer.digest }
    },
    intercept: (interception) => void interceptions.push(interception),
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
    [Symbol.asyncDispose]: () => registry.close(),
  }
  return registry
}

/** As docker-registry 2.8 does: a manifest is absent for a caller that does not name its type. A wildcard names none. */
const isNamed = (type: string, accept = '') => accept.split(',').some((one) => one.split(';')[0]?.trim() === type)

/** Answers with the bytes, or the part of them that a Range asks for. */
export function sendBytes(request: IncomingMessage, response: ServerResponse, bytes: Buffer): void {
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? Number.NaN)
  if (Number.isNaN(start)) {
    response.writeHead(200, { 'content-length': bytes.length }).end(bytes)
  } else {
    const part = bytes.subarray(start)
    response
      .writeHead(206, {
        'content-length': part.length,
        'content-range': `bytes ${start}-${bytes.length - 1}/${bytes.length}`,
      })
      .end(part)
  }
}
