/** What the tests of attacks share: the platform with its task manager, which listen, and readers that read nothing. */
import { once } from 'node:events'
import { connect } from 'node:net'
import type { Socket } from 'node:net'
import { listen } from '#http/index.ts'
import { silentLogger as logger } from '../harness/database.ts'
import { startTaskManager } from '../harness/task-manager.ts'
import { startPlant } from '../messages/support.ts'
import type { Plant } from '../messages/support.ts'
import { exampleModule } from '../tasks/support.ts'

export type Whole = AsyncDisposable & {
  readonly plant: Plant
  /** host:port of everything over HTTP. */
  readonly host: string
  readonly port: number
  /** A task of the domain of the plant, or another one, with a module that adds. */
  newTask(fields?: Record<string, unknown>): Promise<string>
}

export async function startWhole(environment: Record<string, string> = {}): Promise<Whole> {
  const plant = await startPlant({
    environment,
    alsoServes: async (...platform) => (await startTaskManager(...platform)).routes,
  })
  const listeners = await listen(plant.api.app, {
    host: '127.0.0.1',
    ports: [{ port: 0, isOptional: false, setting: 'TEST' }],
    logger,
    budget: plant.api.infrastructure.streams.budget,
  })
  const port = listeners.ports[0] as number
  const host = `127.0.0.1:${port}`
  return {
    plant,
    host,
    port,
    async newTask(fields = {}) {
      const made = await plant.owner.call('POST', '/tasks', {
        name: 'add',
        inputs: [1, 2],
        domain_id: plant.domainId,
        ...fields,
      })
      if (made.status !== 201) throw new Error(made.text)
      const { id } = made.json<{ id: string }>()
      const form = new FormData()
      form.append('file', new Blob([new Uint8Array(exampleModule('add'))]), 'module.wasm')
      const headers = { authorization: `Bearer ${plant.owner.accessToken}` }
      const given = await fetch(`http://${host}/tasks/${id}/upload`, { method: 'PUT', headers, body: form })
      if (given.status !== 200) throw new Error(await given.text())
      return id
    },
    async [Symbol.asyncDispose]() {
      await listeners.stop(0)
      await plant[Symbol.asyncDispose]()
    },
  }
}

export type DeafReader = Disposable & {
  readonly socket: Socket
  readonly isClosed: boolean
}

/** Asks for something and reads nothing of the answer but its first bytes. */
export async function askDeaf(port: number, path: string, headers: Record<string, string>): Promise<DeafReader> {
  const socket = connect({ port, host: '127.0.0.1' })
  let isClosed = false
  socket.on('error', () => undefined).on('close', () => (isClosed = true))
  await once(socket, 'connect')
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`)
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n${lines.join('')}\r\n`)
  const [first] = (await once(socket, 'data')) as [Buffer]
  const status = first.toString('latin1').slice(9, 12)
  if (status !== '200' && status !== '101') throw new Error(first.toString())
  socket.pause()
  return {
    socket,
    get isClosed() {
      return isClosed
    },
    [Symbol.dispose]: () => socket.destroy(),
  }
}
