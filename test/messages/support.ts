/** What the tests of messages share: a domain with devices and channels on the platform of the harness. */
import type { TestApi, TestApiOptions, TestResponse, TestUser } from '../harness/api.ts'
import { startTestApi } from '../harness/api.ts'

export type Device = { id: string; secret: string }

export type Plant = AsyncDisposable & {
  readonly api: TestApi
  /** Who made the domain. */
  readonly owner: TestUser
  readonly domainId: string
  newChannel(): Promise<string>
  newDevice(): Promise<Device>
  connect(device: Device, channelId: string, types?: readonly string[]): Promise<void>
  /** A device connected both ways to a channel of its own. */
  newConnectedDevice(): Promise<Device & { channelId: string }>
}

/**
 * Resolves when every earlier request to follow messages receives them: a socket is open and counted as a follower before.
 * Requests are handled one after the other.
 */
export async function untilAllFollow({ messages }: Pick<TestApi['api'], 'messages'>): Promise<void> {
  const access = {
    domainKey: 0,
    domainId: '',
    channelKey: -1,
    channelId: '',
    publisherKey: null,
    publisherId: null,
    retentionDays: null,
  }
  const nothing = () => undefined
  const last = await messages.follow({
    access,
    filter: '',
    authorize: () => Promise.resolve(),
    deliver: nothing,
    onEnd: nothing,
  })
  last.close()
}

/** Route of the domain, for paths that name it so. */
export const DOMAIN_ROUTE = 'plant'

export async function startPlant(options: TestApiOptions = {}): Promise<Plant> {
  const api = await startTestApi(options)
  const owner = await api.newUser()
  const domain = await owner.call('POST', '/domains', { name: 'plant', alias: DOMAIN_ROUTE })
  const domainId = created<{ id: string }>(domain).id

  const plant: Plant = {
    api,
    owner,
    domainId,
    async newChannel() {
      return created<{ id: string }>(await owner.call('POST', `/${domainId}/channels`, { name: 'channel' })).id
    },
    async newDevice() {
      const response = await owner.call('POST', `/${domainId}/clients`, { name: 'client' })
      const client = created<{ id: string; credentials: { secret: string } }>(response)
      return { id: client.id, secret: client.credentials.secret }
    },
    async connect(device, channelId, types = ['publish', 'subscribe']) {
      const body = { client_ids: [device.id], channel_ids: [channelId], types }
      const response = await owner.call('POST', `/${domainId}/channels/connect`, body)
      if (response.status !== 201) throw new Error(response.text)
    },
    async newConnectedDevice() {
      const [device, channelId] = [await plant.newDevice(), await plant.newChannel()]
      await plant.connect(device, channelId)
      return { ...device, channelId }
    },
    [Symbol.asyncDispose]: () => api[Symbol.asyncDispose](),
  }
  return plant
}

function created<T>(response: TestResponse): T {
  if (response.status !== 201) throw new Error(response.text)
  return response.json<T>()
}
