/** What the tests of tasks and channels share: the platform and a manager in one process over one database, and a worker. */
import { randomUUID } from 'node:crypto'
import { startTestApi } from '../harness/api.ts'
import type { Caller, TestUser } from '../harness/api.ts'
import { startTaskManager } from '../harness/task-manager.ts'
import { runProxy } from '../proxy/running-proxy.ts'
import { FAST, clientOf, exampleModule, startTestWorker } from './support.ts'

export type TestPlatform = Awaited<ReturnType<typeof startTestPlatform>>

export async function startTestPlatform() {
  const proxy = await runProxy()
  let grpc: { grpcAddress: string; workerToken: string } | undefined
  const api = await startTestApi({
    alsoServes: async (...platform) => {
      const manager = await startTaskManager(...platform, {
        mode: 'off',
        environment: proxy.managerEnvironment,
        timing: FAST,
      })
      proxy.uploads = manager.readUpload
      grpc = manager
      return manager.routes
    },
  })
  if (grpc === undefined) throw new Error('the manager was not started')
  const worker = await startTestWorker(grpc)
  const upload = ({ accessToken }: TestUser, task: string, module = 'add') =>
    clientOf(api.app).upload(task, exampleModule(module), 'file', { authorization: `Bearer ${accessToken}` })
  return {
    api,
    worker,
    /** For more workers. */
    grpc,
    database: api.database,

    async newDomain(call: Caller): Promise<string> {
      const made = await call('POST', '/domains', {
        name: `domain ${randomUUID()}`,
        route: `d-${randomUUID().slice(0, 8)}`,
      })
      return created(made)
    },

    newChannel: async (call: Caller, domain: string) =>
      created(await call('POST', `/${domain}/channels`, { name: 'channel' })),

    upload,

    /** Publishes records of SenML. */
    async publish(call: Caller, domain: string, channel: string, records: unknown, subtopic = ''): Promise<void> {
      const path = `/m/${domain}/c/${channel}${subtopic === '' ? '' : `/${subtopic}`}`
      const sent = await call('POST', path, records, { 'content-type': 'application/senml+json' })
      if (sent.status !== 202) throw new Error(`not published: ${sent.status} ${sent.text}`)
    },

    /** A task with the module of an example. */
    async newTask(user: TestUser, domain: string, fields: Record<string, unknown>, module = 'add'): Promise<string> {
      const id = created(await user.call('POST', '/tasks', { name: module, domain_id: domain, ...fields }))
      const given = await upload(user, id, module)
      if (given.status !== 200) throw new Error(`the module was refused: ${JSON.stringify(given.body)}`)
      return id
    },

    /** The new user, with a role of these actions on the domain. */
    async newMember(owner: Caller, domain: string, actions: readonly string[]) {
      const user = await api.newUser()
      const role = await owner('POST', `/domains/${domain}/roles`, {
        role_name: `role ${randomUUID().slice(0, 8)}`,
        optional_actions: actions,
        optional_members: [user.id],
      })
      if (role.status !== 201) throw new Error(`the role was refused: ${role.text}`)
      return { ...user, role: `/domains/${domain}/roles/${role.json<{ role_id: string }>().role_id}` }
    },

    async close(): Promise<void> {
      await worker.close()
      await api[Symbol.asyncDispose]()
      await proxy[Symbol.asyncDispose]()
    },
  }
}

function created(answer: Awaited<ReturnType<Caller>>): string {
  if (answer.status !== 201) throw new Error(`not created: ${answer.status} ${answer.text}`)
  return answer.json<{ id: string }>().id
}

/** A platform with a user and their domain, for `useWorld`. */
export async function startTestTenant() {
  const platform = await startTestPlatform()
  const owner = await platform.api.newUser()
  const domain = await platform.newDomain(owner.call)
  return { ...platform, owner, domain, [Symbol.asyncDispose]: () => platform.close() }
}
