/**
 * What this process committed since its last fold, added up while it is at hand: so the folder need not read it again. A
 * tally is a shortcut and nothing more: batches that are in none are read and folded from the tables.
 */
import { isClearing, protocolNumber, retentionClassOf } from '../model/message.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import { microsSince2000 } from '../store/binary-rows.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import type { Run } from '../store/runs.ts'
import { BUCKET_SECONDS, runsOf } from '../store/runs.ts'
import { TallyRows } from './tally-rows.ts'
import type { Where } from './tally-rows.ts'

const BUCKET_MICROS = BUCKET_SECONDS * 1e6
/** Rows that one tally holds, each some 200 bytes. */
const MAX_ROWS = 300_000
/** The folder looks at so many batches in a round. */
export const MAX_TALLY_BATCHES = 4_000

type ClientTally = { firstSeq: number; lastSeq: number; messages: number }
type DomainTally = { messages: number; records: number }

export class Tally {
  readonly seqs: number[] = []
  readonly clients = new Map<number, ClientTally>()
  readonly domains = new Map<number, DomainTally>()
  readonly rows = new TallyRows()
  #records = 0
  #isExact = true

  get records(): number {
    return this.#records
  }

  /** False when it holds a time that is too far away for it: then all of it is left to be folded from the tables. */
  get isExact(): boolean {
    return this.#isExact
  }

  /** Whether another batch may be added; what is not is folded from the tables. */
  get isFull(): boolean {
    return this.rows.length >= MAX_ROWS || this.seqs.length >= MAX_TALLY_BATCHES
  }

  /** A committed batch, its messages in the order in which they are numbered; batches of one lane in their order. */
  add(batchSeq: number, batch: readonly StorableMessage[]): void {
    this.seqs.push(batchSeq)
    batch.forEach((storable, number) => {
      // Of it nothing lies in the tables, which others count by.
      if (isClearing(storable.message)) return
      const records = this.#addRecords(batchSeq, number, storable)
      this.#addUsage(batchSeq, storable, records)
    })
  }

  /** Holds nothing any more, and the memory of what it held. */
  clear(): void {
    this.seqs.length = 0
    this.clients.clear()
    this.domains.clear()
    this.rows.clear()
    this.#records = 0
    this.#isExact = true
  }

  #addRecords(batchSeq: number, number: number, { message, seriesKeys }: StorableMessage): number {
    const { content, access } = message
    if (content.kind !== 'records') return content.kind === 'documents' ? content.documents.length : 1
    const retentionDays = retentionClassOf(access.retentionDays)
    const protocol = protocolNumber(message.protocol)
    const { channelKey } = access
    for (const [runNumber, run] of runsOf(content.records, seriesKeys).entries()) {
      this.#addRun(run, { channelKey, batchSeq, message: number, run: runNumber, retentionDays, protocol })
    }
    return content.records.length
  }

  #addRun({ records, seriesKeys }: Run, where: Where): void {
    this.#records += records.length
    for (let index = 0; index < records.length; index++) {
      const record = records[index] as ResolvedRecord
      const micros = microsSince2000(record.timeSeconds)
      if (!Number.isSafeInteger(micros)) this.#isExact = false
      const bucket = Math.floor(micros / BUCKET_MICROS)
      this.rows.add(seriesKeys[index] as number, bucket, micros, where, index + 1, record)
    }
  }

  #addUsage(batchSeq: number, { message: { access } }: StorableMessage, records: number): void {
    const domain = this.domains.get(access.domainKey)
    if (domain === undefined) this.domains.set(access.domainKey, { messages: 1, records })
    else {
      domain.messages += 1
      domain.records += records
    }
    if (access.publisherKey === null) return
    const client = this.clients.get(access.publisherKey)
    if (client === undefined)
      this.clients.set(access.publisherKey, { firstSeq: batchSeq, lastSeq: batchSeq, messages: 1 })
    else {
      client.lastSeq = batchSeq
      client.messages += 1
    }
  }
}
