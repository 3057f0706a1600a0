/**
 * The messages that there is one of per run, written and read by hand: assignments, results and receipts. The bytes are those of `toBinary`
 * and mean what `fromBinary` says; a message that has anything unusual in it is left to those (Protocol Buffers, "Encoding").
 */
import type {
  Assignment,
  Grant,
  ModulePeer,
  ModuleRef,
  RunLimits,
  RunRef,
  RunResult,
  StagedResult,
} from './gen/cluster/v1/run_pb.ts'
import type { ResultReceipt, SessionRequest, SessionResponse } from './gen/cluster/v1/worker_pb.ts'

const FIRST_BYTES = 16 * 1024
/** What one message needed is kept for the next one, unless it was as large as this. */
const KEPT_BYTES = 1024 * 1024
/** The bytes of a character of UTF-16 in UTF-8, at most. */
const MAX_BYTES_PER_CHARACTER = 3
const MAX_VARINT_BYTES = 10
const LENGTH_DELIMITED = 2
const VARINT = 0
const DOUBLE = 1
const DOUBLE_BYTES = 8

let buffer = Buffer.allocUnsafe(FIRST_BYTES)
let at = 0

/** The bytes that `write` writes, in a buffer of their own. */
function bytesOf(write: () => void): Buffer {
  at = 0
  write()
  const bytes = Buffer.from(buffer.subarray(0, at))
  if (buffer.length > KEPT_BYTES) buffer = Buffer.allocUnsafe(FIRST_BYTES)
  return bytes
}

function reserve(bytes: number): void {
  if (at + bytes <= buffer.length) return
  const larger = Buffer.allocUnsafe(Math.max(buffer.length * 2, at + bytes))
  // All of it: behind `at` lies what a length is still to be written before.
  buffer.copy(larger)
  buffer = larger
}

function varintBytes(value: number): number {
  let bytes = 1
  for (let rest = value; rest > 0x7f; rest = Math.floor(rest / 0x80)) bytes += 1
  return bytes
}

/** Room for it is there. */
function putVarint(value: number): void {
  let rest = value
  for (; rest > 0x7f; rest = Math.floor(rest / 0x80)) buffer[at++] = (rest % 0x80) | 0x80
  buffer[at++] = rest
}

function writeNumber(field: number, value: number): void {
  if (value === 0) return
  reserve(1 + MAX_VARINT_BYTES)
  buffer[at++] = (field << 3) | VARINT
  putVarint(value)
}

function writeBigint(field: number, value: bigint): void {
  if (value <= Number.MAX_SAFE_INTEGER) return writeNumber(field, Number(value))
  reserve(1 + MAX_VARINT_BYTES)
  buffer[at++] = (field << 3) | VARINT
  let rest = value
  for (; rest > 0x7fn; rest >>= 7n) buffer[at++] = Number(rest & 0x7fn) | 0x80
  buffer[at++] = Number(rest)
}

function writeDouble(field: number, value: number): void {
  if (Object.is(value, 0)) return
  reserve(9)
  buffer[at++] = (field << 3) | DOUBLE
  at = buffer.writeDoubleLE(value, at)
}

function writeText(field: number, text: string): void {
  if (text !== '') putText(field, text)
}

function putText(field: number, text: string): void {
  reserve(1 + MAX_VARINT_BYTES + text.length * MAX_BYTES_PER_CHARACTER)
  buffer[at++] = (field << 3) | LENGTH_DELIMITED
  const lengthBytes = varintBytes(text.length)
  putSized(lengthBytes, buffer.write(text, at + lengthBytes))
}

function writePart<Part>(field: number, part: Part, lengthBytes: number, write: (part: Part) => void): void {
  reserve(1 + MAX_VARINT_BYTES)
  buffer[at++] = (field << 3) | LENGTH_DELIMITED
  const start = at
  at += lengthBytes
  write(part)
  const size = at - start - lengthBytes
  at = start
  reserve(MAX_VARINT_BYTES + size)
  putSized(lengthBytes, size)
}

/** The length of what was written behind room for a length of so many bytes. */
function putSized(lengthBytes: number, size: number): void {
  const needed = varintBytes(size)
  if (needed !== lengthBytes) buffer.copyWithin(at + needed, at + lengthBytes, at + lengthBytes + size)
  putVarint(size)
  at += size
}

/** Lengths that messages of a usual size have. */
const SHORT = 1
const MIDDLE = 2
const LONG = 3

function putRef({ runId, attempt, fence }: RunRef): void {
  writeText(1, runId)
  writeNumber(2, attempt)
  writeBigint(3, fence)
}

function putModule({ digest, sizeBytes, sourceAddress, reference, ticket, peers }: ModuleRef): void {
  writeText(1, digest)
  writeBigint(2, sizeBytes)
  writeText(3, sourceAddress)
  writeText(4, reference)
  writeText(5, ticket)
  for (const peer of peers) {
    writePart(6, peer, SHORT, ({ address, workerId }) => {
      writeText(1, address)
      writeText(2, workerId)
    })
  }
}

function putLimits({ timeoutMs, memoryLimitBytes, maxOutputBytes, maxResultBytes }: RunLimits): void {
  writeBigint(1, timeoutMs)
  writeBigint(2, memoryLimitBytes)
  writeBigint(3, maxOutputBytes)
  writeBigint(4, maxResultBytes)
}

function putGrant({ kind, channelId, subtopic, name }: Grant): void {
  writeNumber(1, kind)
  writeText(2, channelId)
  writeText(3, subtopic)
  writeText(4, name)
}

function writeTexts(field: number, texts: Readonly<Record<string, string>>): void {
  for (const name of Object.keys(texts)) {
    writePart(field, name, SHORT, (key) => {
      // Both are written even when they are empty, as of every entry of a map.
      putText(1, key)
      putText(2, texts[key] ?? '')
    })
  }
}

function putAssignment(assignment: Assignment): void {
  const { run, module, limits } = assignment
  if (run !== undefined) writePart(1, run, SHORT, putRef)
  writeText(2, assignment.taskId)
  writeText(3, assignment.domainId)
  writeText(4, assignment.taskName)
  if (module !== undefined) writePart(5, module, MIDDLE, putModule)
  writeText(6, assignment.function)
  writeText(7, assignment.inputsJson)
  for (const argument of assignment.cliArgs) putText(8, argument)
  writeTexts(9, assignment.env)
  if (limits !== undefined) writePart(10, limits, SHORT, putLimits)
  writeNumber(11, assignment.onLost)
  writeNumber(12, assignment.daemon ? 1 : 0)
  for (const grant of assignment.grants) writePart(13, grant, SHORT, putGrant)
  writeTexts(14, assignment.secrets)
  writeText(15, assignment.triggerJson)
}

function putResult(result: RunResult): void {
  if (result.run !== undefined) writePart(1, result.run, SHORT, putRef)
  writeNumber(2, result.state)
  writeNumber(3, result.reason)
  writeText(4, result.error)
  writeText(5, result.resultsJson)
  if (result.staged !== undefined) {
    writePart(6, result.staged, SHORT, ({ digest, sizeBytes }) => {
      writeText(1, digest)
      writeBigint(2, sizeBytes)
    })
  }
  writeDouble(7, result.durationMs)
  writeNumber(8, result.outputTruncated ? 1 : 0)
  writeDouble(9, result.prepareMs)
}

function putReceipt({ run, recorded }: ResultReceipt): void {
  if (run !== undefined) writePart(1, run, SHORT, putRef)
  writeNumber(2, recorded ? 1 : 0)
}

/** As `toBinary`. */
export function encodeResult(result: RunResult): Uint8Array {
  return bytesOf(() => putResult(result))
}

/** As `toBinary`; undefined: the message is of another kind. */
export function encodeRequest({ message }: SessionRequest): Buffer | undefined {
  if (message.case !== 'result') return undefined
  const { results } = message.value
  return bytesOf(() =>
    writePart(6, results, LONG, () => {
      for (const result of results) writePart(1, result, MIDDLE, putResult)
    }),
  )
}

/** As `toBinary`; undefined: the message is of another kind. */
export function encodeResponse({ message }: SessionResponse): Buffer | undefined {
  switch (message.case) {
    case 'assign': {
      const { assignments } = message.value
      return bytesOf(() =>
        writePart(2, assignments, LONG, () => {
          for (const assignment of assignments) writePart(1, assignment, MIDDLE, putAssignment)
        }),
      )
    }
    case 'resultAck': {
      const { receipts } = message.value
      return bytesOf(() =>
        writePart(5, receipts, LONG, () => {
          for (const receipt of receipts) writePart(1, receipt, SHORT, putReceipt)
        }),
      )
    }
    default:
      return undefined
  }
}

/** The message has something that is left to `fromBinary`: a field of a newer version, one that comes twice, damage. */
class Unusual extends Error {}

/** One message of the bytes, field by field. */
class Fields {
  readonly #bytes: Buffer
  #at: number
  readonly #end: number
  /** Of the field that `next` found. */
  #wireType = VARINT

  constructor(bytes: Buffer, start: number, end: number) {
    this.#bytes = bytes
    this.#at = start
    this.#end = end
  }

  /** The number of the next field; 0 at the end. */
  next(): number {
    if (this.#at === this.#end) return 0
    const tag = this.#varint()
    // All fields that are known here have tags of one byte; field 0 is none.
    if (tag > 0x7f || tag < 8) throw new Unusual()
    this.#wireType = tag & 7
    return tag >>> 3
  }

  number(): number {
    if (this.#wireType !== VARINT) throw new Unusual()
    return this.#varint()
  }

  double(): number {
    if (this.#wireType !== DOUBLE) throw new Unusual()
    const start = this.#at
    this.#at += DOUBLE_BYTES
    if (this.#at > this.#end) throw new Unusual()
    return this.#bytes.readDoubleLE(start)
  }

  /** Anything but 0 and 1 is unusual. */
  bool(): boolean {
    const value = this.number()
    if (value > 1) throw new Unusual()
    return value === 1
  }

  text(): string {
    const [start, end] = this.#part()
    const text = this.#bytes.toString('utf8', start, end)
    // Perhaps a character that is said wrongly.
    if (text.includes('\ufffd')) throw new Unusual()
    return text
  }

  message(): Fields {
    const [start, end] = this.#part()
    return new Fields(this.#bytes, start, end)
  }

  #part(): [start: number, end: number] {
    if (this.#wireType !== LENGTH_DELIMITED) throw new Unusual()
    const size = this.#varint()
    const start = this.#at
    this.#at += size
    if (this.#at > this.#end) throw new Unusual()
    return [start, this.#at]
  }

  /** Up to 2^49: what is larger is unusual. */
  #varint(): number {
    let value = 0
    for (let factor = 1; factor < 2 ** 49; factor *= 0x80) {
      const byte = this.#bytes[this.#at++]
      if (byte === undefined || this.#at > this.#end) throw new Unusual()
      value += (byte & 0x7f) * factor
      if (byte <= 0x7f) return value
    }
    throw new Unusual()
  }
}

function readRef(fields: Fields): RunRef {
  const ref: RunRef = { $typeName: 'skein.cluster.v1.RunRef', runId: '', attempt: 0, fence: 0n }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) ref.runId = fields.text()
    else if (field === 2) ref.attempt = uint32(fields.number())
    else if (field === 3) ref.fence = BigInt(fields.number())
    else throw new Unusual()
  }
  return ref
}

function readModule(fields: Fields): ModuleRef {
  const module: ModuleRef = {
    $typeName: 'skein.cluster.v1.ModuleRef',
    digest: '',
    sizeBytes: 0n,
    sourceAddress: '',
    reference: '',
    ticket: '',
    peers: [],
  }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) module.digest = fields.text()
    else if (field === 2) module.sizeBytes = BigInt(fields.number())
    else if (field === 3) module.sourceAddress = fields.text()
    else if (field === 4) module.reference = fields.text()
    else if (field === 5) module.ticket = fields.text()
    else if (field === 6) module.peers.push(readPeer(fields.message()))
    else throw new Unusual()
  }
  return module
}

function readPeer(fields: Fields): ModulePeer {
  const peer: ModulePeer = { $typeName: 'skein.cluster.v1.ModulePeer', address: '', workerId: '' }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) peer.address = fields.text()
    else if (field === 2) peer.workerId = fields.text()
    else throw new Unusual()
  }
  return peer
}

function readLimits(fields: Fields): RunLimits {
  const limits: RunLimits = {
    $typeName: 'skein.cluster.v1.RunLimits',
    timeoutMs: 0n,
    memoryLimitBytes: 0n,
    maxOutputBytes: 0n,
    maxResultBytes: 0n,
  }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) limits.timeoutMs = BigInt(fields.number())
    else if (field === 2) limits.memoryLimitBytes = BigInt(fields.number())
    else if (field === 3) limits.maxOutputBytes = BigInt(fields.number())
    else if (field === 4) limits.maxResultBytes = BigInt(fields.number())
    else throw new Unusual()
  }
  return limits
}

function readEntry(fields: Fields, texts: Record<string, string>): void {
  let key = ''
  let value = ''
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) key = fields.text()
    else if (field === 2) value = fields.text()
    else throw new Unusual()
  }
  // What an object would take for something else.
  if (key === '__proto__') throw new Unusual()
  texts[key] = value
}

function readAssignment(fields: Fields): Assignment {
  const assignment: Assignment = {
    $typeName: 'skein.cluster.v1.Assignment',
    taskId: '',
    domainId: '',
    taskName: '',
    function: '',
    inputsJson: '',
    cliArgs: [],
    env: {},
    onLost: 0,
    daemon: false,
    grants: [],
    secrets: {},
    triggerJson: '',
  }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    switch (field) {
      case 1:
        assignment.run = once(assignment.run, readRef(fields.message()))
        break
      case 2:
        assignment.taskId = fields.text()
        break
      case 3:
        assignment.domainId = fields.text()
        break
      case 4:
        assignment.taskName = fields.text()
        break
      case 5:
        assignment.module = once(assignment.module, readModule(fields.message()))
        break
      case 6:
        assignment.function = fields.text()
        break
      case 7:
        assignment.inputsJson = fields.text()
        break
      case 8:
        assignment.cliArgs.push(fields.text())
        break
      case 9:
        readEntry(fields.message(), assignment.env)
        break
      case 10:
        assignment.limits = once(assignment.limits, readLimits(fields.message()))
        break
      case 11:
        assignment.onLost = uint32(fields.number()) as Assignment['onLost']
        break
      case 14:
        readEntry(fields.message(), assignment.secrets)
        break
      case 15:
        assignment.triggerJson = fields.text()
        break
      default:
        // Daemons and grants too: there are few.
        throw new Unusual()
    }
  }
  return assignment
}

/** Two of one message are put together by `fromBinary`. */
function once<Part>(before: Part | undefined, part: Part): Part {
  if (before !== undefined) throw new Unusual()
  return part
}

/** Beyond, it is cut to 32 bits, and an enum may become negative. */
function uint32(value: number): number {
  if (value > 0x7fff_ffff) throw new Unusual()
  return value
}

function readStaged(fields: Fields): StagedResult {
  const staged: StagedResult = { $typeName: 'skein.cluster.v1.StagedResult', digest: '', sizeBytes: 0n }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) staged.digest = fields.text()
    else if (field === 2) staged.sizeBytes = BigInt(fields.number())
    else throw new Unusual()
  }
  return staged
}

function readResult(fields: Fields): RunResult {
  const result: RunResult = {
    $typeName: 'skein.cluster.v1.RunResult',
    state: 0,
    reason: 0,
    error: '',
    resultsJson: '',
    durationMs: 0,
    outputTruncated: false,
    prepareMs: 0,
  }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    switch (field) {
      case 1:
        result.run = once(result.run, readRef(fields.message()))
        break
      case 2:
        result.state = uint32(fields.number()) as RunResult['state']
        break
      case 3:
        result.reason = uint32(fields.number()) as RunResult['reason']
        break
      case 4:
        result.error = fields.text()
        break
      case 5:
        result.resultsJson = fields.text()
        break
      case 6:
        result.staged = once(result.staged, readStaged(fields.message()))
        break
      case 7:
        result.durationMs = fields.double()
        break
      case 8:
        result.outputTruncated = fields.bool()
        break
      case 9:
        result.prepareMs = fields.double()
        break
      default:
        throw new Unusual()
    }
  }
  return result
}

function readReceipt(fields: Fields): ResultReceipt {
  const receipt: ResultReceipt = { $typeName: 'skein.cluster.v1.ResultReceipt', recorded: false }
  for (let field = fields.next(); field !== 0; field = fields.next()) {
    if (field === 1) receipt.run = once(receipt.run, readRef(fields.message()))
    else if (field === 2) receipt.recorded = fields.bool()
    else throw new Unusual()
  }
  return receipt
}

/** The parts of the list that the first field of a message holds; undefined: there is something unusual in it. */
function readList<Part>(bytes: Buffer, read: (fields: Fields) => Part): Part[] | undefined {
  try {
    const fields = new Fields(bytes, 0, bytes.length)
    fields.next()
    const inner = fields.message()
    if (fields.next() !== 0) return undefined
    const parts: Part[] = []
    for (let field = inner.next(); field !== 0; field = inner.next()) {
      if (field !== 1) return undefined
      parts.push(read(inner.message()))
    }
    return parts
  } catch (error) {
    if (error instanceof Unusual) return undefined
    throw error
  }
}

const tagOf = (field: number) => (field << 3) | LENGTH_DELIMITED
const TAG_OF_ASSIGN = tagOf(2)
const TAG_OF_RESULT_ACK = tagOf(5)
const TAG_OF_RESULT = tagOf(6)

/** As `fromBinary`; undefined: the message is of another kind, or has something unusual in it. */
export function decodeResponse(bytes: Buffer): SessionResponse | undefined {
  const $typeName = 'skein.cluster.v1.SessionResponse'
  if (bytes[0] === TAG_OF_ASSIGN) {
    const assignments = readList(bytes, readAssignment)
    if (assignments === undefined) return undefined
    return { $typeName, message: { case: 'assign', value: { $typeName: 'skein.cluster.v1.Assign', assignments } } }
  }
  if (bytes[0] === TAG_OF_RESULT_ACK) {
    const receipts = readList(bytes, readReceipt)
    if (receipts === undefined) return undefined
    return { $typeName, message: { case: 'resultAck', value: { $typeName: 'skein.cluster.v1.ResultAck', receipts } } }
  }
  return undefined
}

/** As `fromBinary`; undefined: the message is of another kind, or has something unusual in it. */
export function decodeRequest(bytes: Buffer): SessionRequest | undefined {
  if (bytes[0] !== TAG_OF_RESULT) return undefined
  const results = readList(bytes, readResult)
  if (results === undefined) return undefined
  const value = { $typeName: 'skein.cluster.v1.Result', results } as const
  return { $typeName: 'skein.cluster.v1.SessionRequest', message: { case: 'result', value } }
}
