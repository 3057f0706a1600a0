/** An HTTP client of its own pool of connections. */
import { Agent, request } from 'node:http'

const MAX_SOCKETS = 256

/** A body other than JSON. */
export type RawBody = { type: string; bytes: Buffer }
export type Call = <T>(method: string, path: string, body?: unknown, authorization?: string) => Promise<T>

/** Rejects with the status and the text of an answer that is no success. */
export function createCaller(port: number): Call {
  const agent = new Agent({ keepAlive: true, maxSockets: MAX_SOCKETS })
  return <T>(method: string, path: string, body?: unknown, authorization?: string): Promise<T> =>
    new Promise((resolve, reject) => {
      const sent = bodyOf(body)
      const headers = {
        ...(sent === undefined ? {} : { 'Content-Type': sent.type, 'Content-Length': String(sent.bytes.length) }),
        ...(authorization === undefined ? {} : { Authorization: authorization }),
      }
      const asked = request({ port, host: '127.0.0.1', method, path, agent, headers }, (response) => {
        const chunks: Buffer[] = []
        response.on('data', (chunk: Buffer) => chunks.push(chunk))
        response.on('end', () => {
          const text = Buffer.concat(chunks).toString('utf8')
          if ((response.statusCode ?? 500) < 300) resolve((text === '' ? undefined : JSON.parse(text)) as T)
          else reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`))
        })
        response.on('error', reject)
      })
      asked.on('error', reject)
      asked.end(sent?.bytes)
    })
}

function bodyOf(body: unknown): RawBody | undefined {
  if (body === undefined) return undefined
  if (isRaw(body)) return body
  return { type: 'application/json', bytes: Buffer.from(JSON.stringify(body)) }
}

const isRaw = (body: unknown): body is RawBody =>
  typeof body === 'object' && body !== null && 'bytes' in body && Buffer.isBuffer(body.bytes)

/** A form with one file. */
export function formOf(file: Uint8Array): RawBody {
  const boundary = 'skein-bench-form'
  const head = `--${boundary}\r\nContent-Disposition: form-data; name="file"; filename="module.wasm"\r\nContent-Type: application/wasm\r\n\r\n`
  return {
    type: `multipart/form-data; boundary=${boundary}`,
    bytes: Buffer.concat([Buffer.from(head), file, Buffer.from(`\r\n--${boundary}--\r\n`)]),
  }
}
