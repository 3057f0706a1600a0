/**
 * Users who say what devices should be and give them commands, and devices that do it over MQTT and HTTP, while something is killed. What they know is
 * compared with what is stored: no change that was acknowledged is missing, of two writers none undoes the other, no device is sent something older
 * than it had, each command has one result, the first one, and nothing stays open.
 */
import { randomUUID } from 'node:crypto'
import { connect } from 'node:net'
import mqtt from 'mqtt'
import { until } from '../harness/until.ts'
import type { Answer, Whole } from '../harness/whole.ts'
import type { Domain } from './losses.ts'

export type FleetNode = { readonly mqttPort: number; readonly call: Whole['call'] }

type Device = { id: string; secret: string; isMqtt: boolean }
type State = {
  desired: Record<string, number>
  reported: Record<string, number>
  delta: Record<string, number>
  version: number
}
type Command = { id: string; name: string; status: string; result?: unknown }
type Options = { body?: unknown; headers?: Record<string, string> }

/** Of each of the two protocols. */
const DEVICES_OF_A_KIND = 2
/** Fields of the document without a name, of which each has a user who writes no other. */
const FIELDS = ['left', 'right'] as const
/** The document whose only field two users count up with `If-Match`. */
const COUNTER = 'counter'
const COUNTING_USERS = 2
/** A device answers as many commands twice, with another result. */
const DOUBLED = 0.2
/** Fewer than are kept of a client. */
const MAX_COMMANDS = 900
const PAUSE_MS = 50
const COMMAND_PAUSE_MS = 100
const AFTER_FAILURE_MS = 100
const CONNECT_TIMEOUT_MS = 10_000
const SETTLE_DEADLINE_MS = 120_000
const PAGE = 100

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))

export class DeviceFleet {
  readonly #nodes: readonly FleetNode[]
  readonly #domain: Domain
  readonly #devices: readonly Device[]
  readonly #faults: string[] = []
  /** By `<device> <field>`: the greatest value whose change was acknowledged, of users, and `seen` of devices. */
  readonly #acknowledged = new Map<string, number>()
  /** By device: the values of the counter whose change was acknowledged, and the number of changes without an answer. */
  readonly #counted = new Map<string, { values: Set<number>; unknown: number }>()
  /** By the id of a command: the device that it is for. */
  readonly #given = new Map<string, string>()
  /** By the id of a command: the results that were acknowledged, in order. */
  readonly #answers = new Map<string, string[]>()
  readonly #underWay = new Set<string>()
  readonly #clients: mqtt.MqttClient[] = []
  readonly #loops: Promise<void>[] = []
  #turn = 0
  #changes = 0
  #isOver = false
  #paused: PromiseWithResolvers<void> | undefined
  #users = 0
  #waiting = 0

  private constructor(nodes: readonly FleetNode[], domain: Domain, devices: readonly Device[]) {
    this.#nodes = nodes
    this.#domain = domain
    this.#devices = devices
    for (const device of devices) {
      this.#counted.set(device.id, { values: new Set(), unknown: 0 })
      if (device.isMqtt) this.#connect(device)
      else this.#loops.push(this.#poll(device))
      for (const field of FIELDS) this.#user(this.#merge(device, field))
      for (let user = 0; user < COUNTING_USERS; user++) this.#user(this.#count(device))
      this.#user(this.#command(device))
    }
  }

  static async begin(nodes: readonly FleetNode[], domain: Domain): Promise<DeviceFleet> {
    const devices: Device[] = []
    for (let count = 0; count < 2 * DEVICES_OF_A_KIND; count++) {
      const path = `/${domain.id}/clients`
      const made = await domain.create<{ id: string; credentials: { secret: string } }>(path, {
        name: `fleet ${count}`,
      })
      devices.push({ id: made.id, secret: made.credentials.secret, isMqtt: count % 2 === 1 })
    }
    return new DeviceFleet(nodes, domain, devices)
  }

  /** What was acknowledged: changes of what is desired, and commands that devices have answered. */
  get counts(): { changes: number; commands: number } {
    return { changes: this.#changes, commands: this.#answers.size }
  }

  /** Stops the users until it has compared, and lets the devices finish. Returns what is wrong, as sentences. */
  async compare(): Promise<string[]> {
    this.#paused = Promise.withResolvers()
    try {
      await until(() => this.#waiting === this.#users, 'no user writes', SETTLE_DEADLINE_MS)
      let stuck: string[] = []
      await until(
        async () => (stuck = await this.#stuck()).length === 0,
        () => `devices are what they should be: ${stuck.join('; ')}`,
        SETTLE_DEADLINE_MS,
      ).catch((error: unknown) => this.#faults.push((error as Error).message))
      for (const device of this.#devices) {
        await this.#compareState(device)
        await this.#compareCommands(device)
      }
      return this.#faults.splice(0)
    } finally {
      this.#paused.resolve()
      this.#paused = undefined
    }
  }

  async end(): Promise<void> {
    this.#isOver = true
    this.#paused?.resolve()
    for (const client of this.#clients) client.end(true)
    await Promise.all(this.#loops)
  }

  #user(loop: Promise<void>): void {
    this.#users += 1
    this.#loops.push(loop)
  }

  /** Between two actions of a user. False when the fleet ends. */
  async #goOn(pauseMs: number): Promise<boolean> {
    await sleep(pauseMs)
    this.#waiting += 1
    while (this.#paused !== undefined && !this.#isOver) await this.#paused.promise
    this.#waiting -= 1
    return !this.#isOver
  }

  #node(): FleetNode {
    return this.#nodes[this.#turn++ % this.#nodes.length] as FleetNode
  }

  /** Undefined: nobody knows. */
  async #call(method: string, path: string, authorization: string, options: Options = {}): Promise<Answer | undefined> {
    const answer = await this.#node()
      .call(method, path, { ...options, authorization })
      .catch(() => undefined)
    return answer === undefined || answer.status >= 500 ? undefined : answer
  }

  /** Repeats until it is answered, at any node. */
  async #untilAnswered(
    method: string,
    path: string,
    authorization: string,
    options: Options = {},
  ): Promise<Answer | undefined> {
    while (!this.#isOver) {
      const answer = await this.#call(method, path, authorization, options)
      if (answer !== undefined) return answer
      await sleep(AFTER_FAILURE_MS)
    }
    return undefined
  }

  async #asUser(method: string, path: string, options: Options = {}): Promise<Answer | undefined> {
    return await this.#untilAnswered(method, `/${this.#domain.id}/clients/${path}`, this.#domain.authorization, options)
  }

  async #asDevice({ secret }: Device, method: string, path: string, options: Options = {}) {
    return await this.#untilAnswered(method, `/c/${this.#domain.id}/${path}`, `Client ${secret}`, options)
  }

  /** Undefined when it is refused, which is a fault. */
  #accepted<T>(answer: Answer | undefined, status: number, what: string): T | undefined {
    if (answer?.status === status) return answer.json<T>()
    if (answer !== undefined) this.#faults.push(`${what}: ${answer.status} ${answer.text}`)
    return undefined
  }

  /** Writes growing values to one field, each until it is acknowledged. */
  async #merge({ id }: Device, field: (typeof FIELDS)[number]): Promise<void> {
    let newest = 0
    for (let value = 1; await this.#goOn(PAUSE_MS); value++) {
      const others = FIELDS.filter((other) => other !== field).map((other) => {
        return [other, this.#acknowledged.get(`${id} ${other}`) ?? 0] as const
      })
      const answer = await this.#asUser('PATCH', `${id}/desired-state`, { body: { [field]: value } })
      const state = this.#accepted<State>(answer, 200, `the change of ${field} of ${id} to ${value}`)
      if (state === undefined) continue
      if (state.desired[field] !== value)
        this.#faults.push(`${field} of ${id} is ${state.desired[field]}, not ${value}`)
      if (state.version < newest) this.#faults.push(`version ${state.version} of ${id} after ${newest}`)
      newest = state.version
      for (const [other, least] of others)
        if ((state.desired[other] ?? 0) < least)
          this.#faults.push(`${other} of ${id} is ${state.desired[other]} after ${least} was acknowledged`)
      this.#acknowledged.set(`${id} ${field}`, value)
      this.#changes += 1
    }
  }

  /** Reads, adds one, and writes if nobody else has. */
  async #count({ id }: Device): Promise<void> {
    const counted = this.#counted.get(id)
    const path = `${id}/desired-state/${COUNTER}`
    while (await this.#goOn(PAUSE_MS)) {
      const read = this.#accepted<State>(await this.#asUser('GET', path), 200, `reading the counter of ${id}`)
      if (read === undefined || counted === undefined) continue
      const count = (read.desired['count'] ?? 0) + 1
      const answer = await this.#call('PATCH', `/${this.#domain.id}/clients/${path}`, this.#domain.authorization, {
        body: { count },
        headers: { 'if-match': String(read.version) },
      })
      if (answer === undefined) counted.unknown += 1
      else if (answer.status === 200) {
        if (counted.values.has(count))
          this.#faults.push(`two changes of the counter of ${id} to ${count} were accepted`)
        counted.values.add(count)
        this.#changes += 1
      } else if (answer.status !== 412) this.#faults.push(`counting of ${id}: ${answer.status} ${answer.text}`)
    }
  }

  /** Gives one command after the other, each with a key until it is acknowledged. */
  async #command({ id }: Device): Promise<void> {
    for (let number = 0; await this.#goOn(COMMAND_PAUSE_MS);) {
      if (number === MAX_COMMANDS) continue
      const name = `n${number}`
      const options = { body: { name, timeout: '1h' }, headers: { 'idempotency-key': name } }
      const answer = await this.#asUser('POST', `${id}/commands`, options)
      // Too many are open.
      if (answer?.status === 422) continue
      const made = this.#accepted<Command>(answer, 201, `command ${name} of ${id}`)
      if (made !== undefined) this.#given.set(made.id, id)
      number += 1
    }
  }

  /** Answers a command until that is acknowledged, sometimes twice. */
  async #carryOut(id: string, send: (result: string) => Promise<unknown>): Promise<void> {
    if (this.#underWay.has(id) || this.#answers.has(id)) return
    this.#underWay.add(id)
    const results = [randomUUID(), ...(Math.random() < DOUBLED ? [randomUUID()] : [])]
    for (const result of results) {
      await send(result)
      // Nobody knows which of them were taken when the fleet ends.
      if (this.#isOver) return
      this.#answers.set(id, [...(this.#answers.get(id) ?? []), result])
    }
    this.#underWay.delete(id)
  }

  /** A device over MQTT with a stored session, on whichever node. */
  #connect(device: Device): void {
    const { id, secret } = device
    const topic = `c/${this.#domain.id}`
    const client = new mqtt.MqttClient(() => connect(this.#node().mqttPort, '127.0.0.1'), {
      clientId: id,
      clean: false,
      username: id,
      password: secret,
      reconnectPeriod: 100,
      reconnectOnConnackError: true,
      connectTimeout: CONNECT_TIMEOUT_MS,
      keepalive: 5,
      protocolVersion: 5,
      properties: { sessionExpiryInterval: 3_600 },
    })
    client.on('error', () => undefined)
    client.on('connect', () =>
      client.subscribe([`${topic}/state/desired/#`, `${topic}/commands/requests/+/+`], { qos: 1 }, () => undefined),
    )
    const newest = new Map<string, number>()
    let seen = 0
    client.on('message', (received, payload) => {
      // `c/<domain>/commands/requests/<id>/<name>`, `c/<domain>/state/desired[/<document>]`
      const [, , noun, , fourth = ''] = received.split('/')
      // mqtt.js sends both again until they are acknowledged.
      if (noun === 'commands') {
        const to = `${topic}/commands/results/${fourth}`
        const textOf = (result: string) => JSON.stringify({ status: 'succeeded', result })
        void this.#carryOut(fourth, (result) =>
          client.publishAsync(to, textOf(result), { qos: 1 }).catch(() => undefined),
        )
        return
      }
      const { version, delta } = JSON.parse(payload.toString()) as { version: number; delta: object }
      if (version < (newest.get(fourth) ?? 0))
        this.#faults.push(`${id} received version ${version} of "${fourth}" after ${newest.get(fourth)}`)
      newest.set(fourth, version)
      const reported = `${topic}/state/reported${fourth === '' ? '' : `/${fourth}`}`
      const mark = fourth === '' ? { seen: ++seen } : {}
      client.publishAsync(reported, JSON.stringify({ ...delta, ...mark }), { qos: 1 }).then(
        () => this.#recordSeen(id, mark.seen),
        () => undefined,
      )
    })
    this.#clients.push(client)
  }

  /** A device over HTTP. */
  async #poll(device: Device): Promise<void> {
    let seen = 0
    while (!this.#isOver) {
      for (const document of ['state', `state/${COUNTER}`]) {
        const read = this.#accepted<State>(await this.#asDevice(device, 'GET', document), 200, `reading ${document}`)
        if (read === undefined || Object.keys(read.delta).length === 0) continue
        const mark = document === 'state' ? { seen: ++seen } : {}
        const answer = await this.#asDevice(device, 'PATCH', document, { body: { ...read.delta, ...mark } })
        if (this.#accepted(answer, 200, `a report of ${document}`) !== undefined) this.#recordSeen(device.id, mark.seen)
      }
      const taken = await this.#asDevice(device, 'GET', 'commands?wait=200ms')
      const { commands } = this.#accepted<{ commands: Command[] }>(taken, 200, 'commands') ?? { commands: [] }
      for (const { id } of commands)
        await this.#carryOut(id, async (result) => {
          const body = { status: 'succeeded', result }
          this.#accepted(
            await this.#asDevice(device, 'POST', `commands/${id}/result`, { body }),
            200,
            `result of ${id}`,
          )
        })
    }
  }

  #recordSeen(id: string, seen: number | undefined): void {
    const key = `${id} seen`
    if (seen !== undefined) this.#acknowledged.set(key, Math.max(seen, this.#acknowledged.get(key) ?? 0))
  }

  async #state({ id }: Device, document = ''): Promise<State | undefined> {
    const answer = await this.#asUser('GET', `${id}/desired-state${document}`)
    return this.#accepted<State>(answer, 200, `reading the state of ${id}`)
  }

  /** All commands of a device. */
  async #commands({ id }: Device, filter = ''): Promise<Command[]> {
    const commands: Command[] = []
    for (;;) {
      const answer = await this.#asUser('GET', `${id}/commands?limit=${PAGE}&offset=${commands.length}${filter}`)
      const page = this.#accepted<{ commands: Command[] }>(answer, 200, `reading the commands of ${id}`)
      commands.push(...(page?.commands ?? []))
      if ((page?.commands.length ?? 0) < PAGE) return commands
    }
  }

  /** What is not done yet. */
  async #stuck(): Promise<string[]> {
    const stuck: string[] = []
    for (const device of this.#devices) {
      for (const document of ['', `/${COUNTER}`]) {
        const { delta } = (await this.#state(device, document)) ?? { delta: {} }
        if (Object.keys(delta).length > 0) stuck.push(`${device.id}${document} differs by ${JSON.stringify(delta)}`)
      }
      for (const { id, status } of await this.#commands(device, '&status=open')) stuck.push(`${id} is ${status}`)
    }
    if (this.#underWay.size > 0) stuck.push(`${this.#underWay.size} answers are not acknowledged`)
    return stuck
  }

  async #compareState(device: Device): Promise<void> {
    const { id } = device
    const state = await this.#state(device)
    for (const [side, field] of [...FIELDS.map((one) => ['desired', one] as const), ['reported', 'seen'] as const]) {
      const [found, least] = [state?.[side][field] ?? 0, this.#acknowledged.get(`${id} ${field}`) ?? 0]
      if (side === 'desired' ? found !== least : found < least)
        this.#faults.push(`${field} of ${id} is ${found}, and ${least} was acknowledged`)
    }
    const count = (await this.#state(device, `/${COUNTER}`))?.desired['count'] ?? 0
    const { values, unknown } = this.#counted.get(id) ?? { values: new Set(), unknown: 0 }
    if (count < values.size || count > values.size + unknown)
      this.#faults.push(
        `the counter of ${id} is ${count}: ${values.size} changes were acknowledged, ${unknown} not answered`,
      )
  }

  async #compareCommands(device: Device): Promise<void> {
    const { id } = device
    const commands = await this.#commands(device)
    const stored = new Set(commands.map((command) => command.id))
    for (const [given, to] of this.#given)
      if (to === id && !stored.has(given)) this.#faults.push(`command ${given} of ${id} is missing`)
    if (new Set(commands.map(({ name }) => name)).size < commands.length)
      this.#faults.push(`a command of ${id} was given twice with one key`)
    for (const { id: command, status, result } of commands)
      if (status !== 'succeeded' || result !== this.#answers.get(command)?.[0])
        this.#faults.push(
          `command ${command} of ${id} is ${status} with ${String(result)}, and was answered with ${this.#answers.get(command)?.join(', ')}`,
        )
    const journal = `/${this.#domain.id}/journal/client/${id}?operation=command.answer`
    const answer = await this.#untilAnswered('GET', journal, this.#domain.authorization)
    const { total } = this.#accepted<{ total: number }>(answer, 200, `the journal of ${id}`) ?? { total: NaN }
    if (total !== commands.length) this.#faults.push(`${commands.length} commands of ${id} ended ${total} times`)
  }
}
