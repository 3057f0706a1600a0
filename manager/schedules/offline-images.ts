/**
 * What the image references of offline tasks lead to. A registry may take its time, or never answer: the round of the keeper does not wait for it,
 * and finds the answer later. A domain has some references at a time, so that slow registries of one do not hold up those of others.
 */
import { BoundedCache } from '#core/bounded-cache.ts'
import { ServiceError } from '#core/errors/index.ts'
import { Slots } from '#core/slots.ts'
import { monotonicMs } from '#core/time.ts'
import type { ResolvedImage } from '../model/start.ts'

/** References that are resolved at the same time, and of one domain. This leaves most of what the starts of runs have. */
const MAX_RESOLVED = 32
const MAX_RESOLVED_PER_DOMAIN = 4
/** How long others of the domain wait for it. */
const WAIT_MS = 60_000
const MAX_WAITING = 1_000
/** Tasks whose answers are kept; the answer of another is asked for again. */
const MAX_KEPT = 10_000
/** A tag may have moved after this. Until the registry has answered again, the known digest is used. */
const FRESH_MS = 30_000
/** A registry that has failed is not asked again before. */
const RETRY_MS = 10_000

export type ImageAnswer = ResolvedImage | Error

type Asked = {
  version: string
  answer: ImageAnswer | undefined
  isAsked: boolean
  /** Not before this. */
  askAgainMs: number
  waiting: Set<() => void>
}

const TRANSIENT: ReadonlySet<string> = new Set(['unavailable', 'timeout', 'rate_limited'])

/** Whether the next answer may be another one. */
export function isTransient(answer: unknown): boolean {
  return answer instanceof ServiceError && TRANSIENT.has(answer.kind)
}

/** A task as it is, with the reference of its module. */
export type TaskImage = { key: number; version: string; reference: string; domainId: string | null }

export class OfflineImages {
  readonly #resolve: (reference: string, domainId: string | null) => Promise<ResolvedImage>
  readonly #nowMs: () => number
  readonly #asked = new BoundedCache<number, Asked>({ maxEntries: MAX_KEPT })
  readonly #slots = new Slots({
    what: 'image references of offline tasks being resolved',
    max: MAX_RESOLVED,
    share: MAX_RESOLVED_PER_DOMAIN,
    waitMs: WAIT_MS,
    maxWaiting: MAX_WAITING,
  })

  constructor(
    resolve: (reference: string, domainId: string | null) => Promise<ResolvedImage>,
    nowMs: () => number = monotonicMs,
  ) {
    this.#resolve = resolve
    this.#nowMs = nowMs
  }

  /** Undefined: there is no answer yet, and `onAnswer` is called when there is. An error is returned once, and asked for again later. */
  find(task: TaskImage, onAnswer: () => void): ImageAnswer | undefined {
    const known = this.#asked.get(task.key)
    const asked: Asked =
      known?.version === task.version
        ? known
        : { version: task.version, answer: undefined, isAsked: false, askAgainMs: 0, waiting: new Set() }
    if (asked !== known) this.#asked.set(task.key, asked)
    const { answer } = asked
    if (answer instanceof Error) asked.answer = undefined
    else if (!asked.isAsked && this.#nowMs() >= asked.askAgainMs) void this.#ask(asked, task)
    if (answer === undefined) asked.waiting.add(onAnswer)
    return answer
  }

  /** Never rejects. */
  async #ask(asked: Asked, { reference, domainId }: TaskImage): Promise<void> {
    asked.isAsked = true
    const answer = await this.#slots
      .run(domainId, () => this.#resolve(reference, domainId))
      .catch((error: unknown) => (error instanceof Error ? error : new Error(String(error))))
    asked.isAsked = false
    asked.askAgainMs = this.#nowMs() + (answer instanceof Error ? RETRY_MS : FRESH_MS)
    // A registry that is away for a while does not make a known digest wrong.
    if (asked.answer === undefined || !isTransient(answer)) asked.answer = answer
    const waiting = [...asked.waiting]
    asked.waiting.clear()
    for (const onAnswer of waiting) onAnswer()
  }
}
