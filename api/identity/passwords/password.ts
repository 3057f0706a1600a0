/** Password hashes: argon2id of Node.js, in the thread pool, in the PHC string format. */
import { argon2, randomBytes, timingSafeEqual } from 'node:crypto'
import { promisify } from 'node:util'
import { ServiceError } from '#core/errors/index.ts'
import { countRefusal } from '#core/metrics/index.ts'
import { withoutTrailing } from '#core/text.ts'

const argon2Async = promisify(argon2)

/** OWASP's recommendation for argon2id: 19 MiB, two passes, one degree of parallelism. */
const MEMORY_KIB = 19_456
const PASSES = 2
const LANES = 1
const TAG_BYTES = 32
const SALT_BYTES = 16

/** Maximum number of concurrent hashes: each uses 19 MiB and a thread of the pool for some 30 ms. */
const MAX_RUNNING = 2
/** Maximum number of waiting hashes. Above it logins fail immediately instead of waiting for minutes. */
const MAX_WAITING = 200
/** Maximum number of waiting hashes of preferred logins. It is separate, so that a flood of other logins does not block them. */
const MAX_PREFERRED_WAITING = 1000

let running = 0
const waiting: (() => void)[] = []
const preferred: (() => void)[] = []

async function acquireSlot(isPreferred: boolean): Promise<void> {
  if (running < MAX_RUNNING) {
    running += 1
    return
  }
  const queue = isPreferred ? preferred : waiting
  if (queue.length >= (isPreferred ? MAX_PREFERRED_WAITING : MAX_WAITING)) {
    countRefusal('password_hashing')
    throw new ServiceError('rate_limited', 'too many concurrent logins: retry in a second', { retryAfterSeconds: 1 })
  }
  await new Promise<void>((resolve) => void queue.push(resolve))
}

function releaseSlot(): void {
  const next = preferred.shift() ?? waiting.shift()
  if (next === undefined) running -= 1
  else next()
}

async function derive(
  password: string,
  salt: Buffer,
  memory: number,
  passes: number,
  parallelism: number,
  isPreferred = false,
): Promise<Buffer> {
  await acquireSlot(isPreferred)
  try {
    const message = Buffer.from(password.normalize('NFC'))
    return await argon2Async('argon2id', { message, nonce: salt, memory, passes, parallelism, tagLength: TAG_BYTES })
  } finally {
    releaseSlot()
  }
}

const unpadded = (bytes: Buffer) => withoutTrailing(bytes.toString('base64'), '=')

/** Returns `$argon2id$v=19$m=…,t=…,p=…$salt$tag`. Throws `rate_limited` when too many hashes wait. */
export async function hashPassword(password: string): Promise<string> {
  const salt = randomBytes(SALT_BYTES)
  const tag = await derive(password, salt, MEMORY_KIB, PASSES, LANES)
  return `$argon2id$v=19$m=${MEMORY_KIB},t=${PASSES},p=${LANES}$${unpadded(salt)}$${unpadded(tag)}`
}

const PHC = /^\$argon2id\$v=19\$m=(\d+),t=(\d+),p=(\d+)\$([A-Za-z0-9+/]+)\$([A-Za-z0-9+/]+)$/

/**
 * True when the password matches the hash. Takes the same time for any password. A preferred login overtakes the others
 * that wait. Throws `rate_limited` when too many wait.
 */
export async function verifyPassword(
  password: string,
  hash: string,
  { isPreferred = false }: { isPreferred?: boolean } = {},
): Promise<boolean> {
  const match = PHC.exec(hash)
  if (match === null) return false
  const [, memory, passes, lanes, salt, tag] = match
  const expected = Buffer.from(tag as string, 'base64')
  const actual = await derive(
    password,
    Buffer.from(salt as string, 'base64'),
    Number(memory),
    Number(passes),
    Number(lanes),
    isPreferred,
  )
  return actual.length === expected.length && timingSafeEqual(actual, expected)
}

let decoy: Promise<string> | undefined

/** Takes the time of a verification, so that the response time does not reveal whether a login exists. */
export async function verifyAgainstDecoy(password: string): Promise<false> {
  decoy ??= hashPassword('nobody')
  await verifyPassword(password, await decoy)
  return false
}
