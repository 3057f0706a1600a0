/** Stands between a command line and the platform, passes every request on, and keeps what it saw. */
import { createServer, request as openRequest } from 'node:http'
import type { AddressInfo } from 'node:net'

export type Seen = {
  method: string
  path: string
  query: URLSearchParams
  headers: Record<string, unknown>
  text: string
}

export type Recorder = AsyncDisposable & { readonly url: string; readonly seen: Seen[] }

export async function startRecorder(target: string): Promise<Recorder> {
  const seen: Seen[] = []
  const server = createServer((incoming, outgoing) => {
    const chunks: Buffer[] = []
    incoming.on('data', (chunk: Buffer) => chunks.push(chunk))
    incoming.on('end', () => {
      const body = Buffer.concat(chunks)
      const { pathname, searchParams } = new URL(incoming.url ?? '/', target)
      const { method = 'GET', headers } = incoming
      seen.push({ method, path: pathname, query: searchParams, headers, text: body.toString('utf8') })
      const onward = openRequest(
        new URL(incoming.url ?? '/', target),
        { method, headers: { ...headers, host: new URL(target).host } },
        (answer) => {
          outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
          answer.pipe(outgoing)
        },
      )
      onward.on('error', () => outgoing.destroy())
      onward.end(body)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    seen,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
