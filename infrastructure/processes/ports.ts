/** Checks ports before several processes share them. */
import { createServer } from 'node:net'
import type { AddressInfo } from 'node:net'

/** A free port of this address. */
export async function freePort(host: string): Promise<number> {
  return await tryPort(host, 0, (port) => port)
}

/** The ports that are in use by other programs. Other errors are reported when the processes open the ports. */
export async function portsInUse(host: string, ports: readonly number[]): Promise<number[]> {
  const inUse: number[] = []
  for (const port of new Set(ports)) {
    if (port === 0) continue
    try {
      await tryPort(host, port, () => undefined)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'EADDRINUSE') inUse.push(port)
    }
  }
  return inUse
}

async function tryPort<T>(host: string, port: number, then: (port: number) => T): Promise<T> {
  const server = createServer()
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host, port }, () => resolve())
  })
  const result = then((server.address() as AddressInfo).port)
  await new Promise<void>((resolve) => server.close(() => resolve()))
  return result
}
