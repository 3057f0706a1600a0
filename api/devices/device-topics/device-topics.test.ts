// docs/metrics.md: the nouns of devices, and how many connections are subscribed to them
import { expect, test } from 'vitest'
import { createDeviceTopics } from './device-topics.ts'
import type { DeviceNoun, DeviceSink } from './device-topics.ts'
import { DEVICE_TOPIC_METRICS } from './metrics.ts'

const SINK = {} as DeviceSink

function nounNamed(noun: string) {
  const closed: string[] = []
  const subscription = (name: string) => ({ close: () => void closed.push(name) })
  const made: DeviceNoun = {
    noun,
    publish: () => Promise.resolve(),
    checkFilter: () => undefined,
    subscribe: () => subscription('subscription'),
    request: () => Promise.resolve(undefined),
    observe: (sink) => (sink === SINK ? subscription('observation') : undefined),
  }
  return { made, closed }
}

async function shown(): Promise<Record<string, number>> {
  const { values } = await DEVICE_TOPIC_METRICS.subscriptions.instrument.get()
  return Object.fromEntries(values.map(({ labels, value }) => [labels.noun, value]))
}

test('open subscriptions and observations are counted by noun, and each close once', async () => {
  const topics = createDeviceTopics()
  const { made, closed } = nounNamed('state')
  topics.register(made)
  topics.register(nounNamed('commands').made)
  expect(await shown()).toEqual({ state: 0, commands: 0 })
  const state = topics.get('state')
  const [first, second] = [state.subscribe(SINK), state.observe(SINK)]
  expect(state.observe({} as DeviceSink)).toBeUndefined()
  expect(await shown()).toEqual({ state: 2, commands: 0 })
  first.close()
  first.close()
  expect(await shown()).toEqual({ state: 1, commands: 0 })
  second?.close()
  expect(await shown()).toEqual({ state: 0, commands: 0 })
  expect(closed).toEqual(['subscription', 'subscription', 'observation'])
  topics.stop()
  expect(await shown()).toEqual({})
})

test('a noun is registered once, and one that is not does not exist', () => {
  const topics = createDeviceTopics()
  topics.register(nounNamed('state').made)
  expect(() => topics.register(nounNamed('state').made)).toThrow('registered twice')
  expect(() => topics.get('files')).toThrow('no such topic')
  topics.stop()
})
