/**
 * The partial aggregate of the batches that this process committed since its last round, summed up while their records are in memory
 * (decision 0028). It only saves work: batches that are in none are read from the tables.
 */
import { isClearing, protocolNumber, retentionClassOf } from '../model/message.ts'
import type { ResolvedRecord } from '../senml/index.ts'
import { microsSince2000 } from '../store/binary-rows.ts'
import type { StorableMessage } from '../store/message-rows.ts'
import { BUCKET_SECONDS, chunksOf } from '../store/record-chunks.ts'
import type { RecordChunk } from '../store/record-chunks.ts'
import { AggregateRows } from './aggregate-rows.ts'
import type { Where } from './aggregate-rows.ts'

const BUCKET_MICROS = BUCKET_SECONDS * 1e6
/** Rows of one partial aggregate, some 200 bytes each. */
const MAX_ROWS = 300_000
/** Less than the number of batches that a round reads. */
const MAX_BATCHES = 4_000

type ClientMessages = { firstSeq: number; lastSeq: number; messages: number }
type Usage = { messages: number; records: number }
/**
 * The usage of a domain: in total, by batch and by retention class. The batches are in their order, because batches of one round may arrive
 * in two different minutes.
 */
type DomainUsage = Usage & { batches: (Usage & { seq: number })[]; classes: Map<number, number> }

export class PartialAggregate {
  readonly seqs: number[] = []
  readonly clients = new Map<number, ClientMessages>()
  readonly domains = new Map<number, DomainUsage>()
  readonly rows = new AggregateRows()
  #records = 0
  #isExact = true

  get records(): number {
    return this.#records
  }

  /** False when a time is outside the exact range of a double: then its batches are read from the tables. */
  get isExact(): boolean {
    return this.#isExact
  }

  /** No further batch may be added. */
  get isFull(): boolean {
    return this.rows.length >= MAX_ROWS || this.seqs.length >= MAX_BATCHES
  }

  /** A committed batch, its messages in the order in which they are numbered; batches of one shard in their order. */
  add(batchSeq: number, batch: readonly StorableMessage[]): void {
    this.seqs.push(batchSeq)
    batch.forEach((storable, number) => {
      // It stores nothing, so that counting from the tables would not find it either.
      if (isClearing(storable.message)) return
      const records = this.#addRecords(batchSeq, number, storable)
      this.#addUsage(batchSeq, storable, records)
    })
  }

  #addRecords(batchSeq: number, number: number, { message, seriesKeys }: StorableMessage): number {
    const { content, access } = message
    if (content.kind !== 'records') return content.kind === 'documents' ? content.documents.length : 1
    const retentionDays = retentionClassOf(access.retentionDays)
    const protocol = protocolNumber(message.protocol)
    const { channelKey } = access
    for (const [chunkNumber, chunk] of chunksOf(content.records, seriesKeys).entries()) {
      this.#addChunk(chunk, { channelKey, batchSeq, message: number, chunk: chunkNumber, retentionDays, protocol })
    }
    return content.records.length
  }

  #addChunk({ records, seriesKeys }: RecordChunk, where: Where): void {
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
    const retentionDays = retentionClassOf(access.retentionDays)
    if (domain === undefined)
      this.domains.set(access.domainKey, {
        messages: 1,
        records,
        batches: [{ seq: batchSeq, messages: 1, records }],
        classes: new Map([[retentionDays, records]]),
      })
    else {
      domain.classes.set(retentionDays, (domain.classes.get(retentionDays) ?? 0) + records)
      domain.messages += 1
      domain.records += records
      const last = domain.batches.at(-1)
      if (last?.seq !== batchSeq) domain.batches.push({ seq: batchSeq, messages: 1, records })
      else {
        last.messages += 1
        last.records += records
      }
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
