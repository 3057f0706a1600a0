/**
 * The states of devices for the devices themselves, and the noun `state` of their topics. It knows no protocol: adapters bring what a device
 * sent, and take what is sent to it.
 */
import type { Journal } from '#api/identity/index.ts'
import type { Database } from '#core/database/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import { MERGE_PATCH_TYPE, parseExactBody } from '#http/index.ts'
import { DeviceTurns, noSuchTopic } from '../device-topics/index.ts'
import type {
  ClientWaits,
  DeviceMessage,
  DeviceNoun,
  DeviceRepresentation,
  DeviceSink,
  DeviceSubscription,
} from '../device-topics/index.ts'
import type { IdentifiedDevice } from '../gate/index.ts'
import { requireVersion, writeOf } from './changes.ts'
import { MAX_DOCUMENT_BYTES, isEmpty, isName, mergePatch, parseName, requireObject } from './document.ts'
import type { JsonObject } from './document.ts'
import type { StateRecord } from './repository.ts'
import { findState, lockStateSoon, touchReported, unwritten, writeStates } from './repository.ts'
import { presentState } from './schema.ts'
import type { NotifiedDevices } from './notified.ts'

const JSON_TYPE = 'application/json'
/** Limits a report, with its blanks. */
const MAX_REPORT_BYTES = 2 * MAX_DOCUMENT_BYTES

/** `bytes`: the size in which it came. `patch`: parsed when its turn has come, because a value needs more memory than its text. */
export type Report = { bytes: number; patch: () => unknown; ifMatch?: number | undefined }

export type DeviceReportsDeps = {
  database: Database
  journal: Journal
  notified: NotifiedDevices
  waits: Pick<ClientWaits, 'wake'>
}

export class DeviceReports {
  readonly #database: Database
  readonly #journal: Journal
  readonly #notified: NotifiedDevices
  readonly #waits: Pick<ClientWaits, 'wake'>
  readonly #turns = new DeviceTurns('reports')

  constructor({ database, journal, notified, waits }: DeviceReportsDeps) {
    this.#waits = waits
    this.#database = database
    this.#journal = journal
    this.#notified = notified
  }

  /** A document that was never written is empty, and has version 0. */
  async get({ clientKey }: IdentifiedDevice, name: string | undefined): Promise<StateRecord> {
    const asked = parseName(name)
    return (await findState(this.#database.db, clientKey, asked)) ?? unwritten(clientKey, asked)
  }

  /**
   * Merges the patch into what the device reports. Resolves after the commit. The journal has a record only where the device comes in sync,
   * or leaves it: a device may report every few seconds. Throws `too_large` for a report that no document could take, and `unavailable`.
   */
  async report(device: IdentifiedDevice, name: string | undefined, report: Report): Promise<StateRecord> {
    const { bytes, patch, ifMatch } = report
    const asked = parseName(name)
    if (bytes > MAX_REPORT_BYTES)
      throw new ServiceError('too_large', `a report is limited to ${MAX_REPORT_BYTES} bytes: got ${bytes}`)
    const state = await this.#turns.run(device, bytes, () =>
      this.#write(device, asked, requireObject(patch()), ifMatch),
    )
    // Most reports are not in the journal.
    this.#waits.wake(device.clientKey)
    return state
  }

  async #write(
    { clientKey, clientId, domainKey }: IdentifiedDevice,
    asked: string,
    body: JsonObject,
    ifMatch: number | undefined,
  ): Promise<StateRecord> {
    return await this.#journal.change('system', async (tx, record) => {
      // A report that waits for its row holds a connection to the database.
      const before = await lockStateSoon(tx, clientKey, asked)
      requireVersion(before, ifMatch)
      const write = writeOf(before, 'reported', mergePatch(before.reported, body))
      if (write === undefined) return await touchReported(tx, clientKey, asked)
      const after = (await writeStates(tx, [write])).get(clientKey) as StateRecord
      const [wasInSync, isInSync] = [isEmpty(before.delta), isEmpty(after.delta)]
      if (wasInSync !== isInSync || write.isNotified)
        record({
          operation: `client_state.${isInSync ? 'in_sync' : 'out_of_sync'}`,
          domainKey,
          entityKeys: [clientKey],
          attributes: { id: clientId, state: asked, version: after.version },
        })
      return after
    })
  }

  /** `c/<domain>/state/…` */
  get noun(): DeviceNoun {
    return {
      noun: 'state',
      publish: async (device, levels, message) => {
        const [first, name, ...more] = levels
        // A part of the topic, so the payload is not to blame.
        if (first !== 'reported' || more.length > 0 || (name !== undefined && !isName(name))) throw noSuchTopic()
        await this.report(device, name, reportOf(message))
      },
      checkFilter: (levels) => void filterOf(levels),
      subscribe: (sink) => this.#subscribe(sink),
      request: async (device, { method, levels: [name, ...more], message }) => {
        if (more.length > 0) throw noSuchTopic()
        if (method === 'get') return represented(await this.get(device, name))
        if (method !== 'patch') throw new ServiceError('method_not_allowed', 'a state accepts GET, PATCH and iPATCH')
        return represented(await this.report(device, name, reportOf(message)))
      },
      observe: (sink) => this.#observe(sink),
    }
  }

  #subscribe(sink: DeviceSink): DeviceSubscription {
    return this.#notified.subscribe(sink, {
      wants: filterOf(sink.topic.levels),
      send: ({ name, version, delta }, callbacks) =>
        sink.send({
          levels: name === '' ? ['desired'] : ['desired', name],
          payload: Buffer.from(JSON.stringify({ version, delta })),
          contentType: JSON_TYPE,
          ...callbacks,
        }),
    })
  }

  #observe(sink: DeviceSink): DeviceSubscription {
    const asked = parseName(sink.topic.levels[0])
    return this.#notified.subscribe(sink, {
      wants: (name) => name === asked,
      changed: (callbacks) => {
        // An observer is sent what a GET returns.
        this.get(sink.device, sink.topic.levels[0]).then(
          (state) => sink.send({ levels: sink.topic.levels, ...represented(state), ...callbacks }),
          (error: unknown) => sink.failed(error),
        )
      },
    })
  }
}

/** Which names the levels of a filter select. Throws `not_found` for levels that are none. */
function filterOf(levels: readonly string[]): (name: string) => boolean {
  const [first, name, ...more] = levels
  if (first !== 'desired' || more.length > 0) throw noSuchTopic()
  if (name === undefined) return (one) => one === ''
  if (name === '+') return (one) => one !== ''
  // `#` also matches the level above it (MQTT 3.1.1 section 4.7.1.2).
  if (name === '#') return () => true
  const asked = parseName(name)
  return (one) => one === asked
}

function represented(state: StateRecord): DeviceRepresentation {
  return { payload: Buffer.from(JSON.stringify(presentState(state))), contentType: JSON_TYPE }
}

/** Throws `unsupported_media_type` for another declared type. */
function reportOf({ payload, contentType }: DeviceMessage): Report {
  const type = contentType?.split(';', 1)[0]?.trim().toLowerCase()
  if (type !== undefined && type !== '' && type !== JSON_TYPE && type !== MERGE_PATCH_TYPE)
    throw new ServiceError('unsupported_media_type', `a state is ${JSON_TYPE} or ${MERGE_PATCH_TYPE}`)
  return { bytes: payload.length, patch: () => parseExactBody(payload) }
}
