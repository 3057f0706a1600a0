/**
 * Client secrets that callers choose. A secret of a domain is used once, so a refusal tells that a client has it: refusals are limited for
 * each caller, as wrong external keys of devices are, and recorded, also those of a dry run (contract, decisions 73 and 87). Secrets
 * that no client has cost nothing.
 */
import { LoginThrottle, guessRules, networkOf, outsideTrial } from '#api/identity/index.ts'
import type { Journal, UserPrincipal } from '#api/identity/index.ts'
import { ServiceError } from '#core/errors/index.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'

const PER_CALLER: BucketRule = { burst: 10, perMinute: 10 }
const PER_ADDRESS: BucketRule = { burst: 100, perMinute: 100 }

export class GivenSecrets {
  readonly #throttle: LoginThrottle

  constructor(shared: SharedLimits | undefined) {
    this.#throttle = new LoginThrottle({
      purpose: 'client secret',
      limit: 'given_secret',
      rules: guessRules(PER_CALLER, PER_ADDRESS),
      shared,
      tooMany: 'too many secrets that other clients of the domain use: retry later',
    })
  }

  /**
   * Runs work that stores secrets of the caller's choice in a domain, whose key is known when it is refused. Throws its errors, and
   * `rate_limited` after too many that were refused because a client has the secret.
   */
  async store<T>(
    caller: UserPrincipal,
    journal: Journal,
    domainKey: () => number | undefined,
    work: () => Promise<T>,
  ): Promise<T> {
    const address = networkOf(caller.origin?.address ?? '')
    const admission = await this.#throttle.admit({ account: `user ${caller.key}`, address, isKnown: false })
    try {
      return await work()
    } catch (error) {
      if (isTakenSecret(error)) {
        admission.fail()
        await recordRefusal(caller, journal, domainKey())
      }
      throw error
    } finally {
      admission.release()
    }
  }

  stop(): void {
    this.#throttle.stop()
  }
}

/** The path of a secret: of a change, of a client, or of a client in a list. */
const SECRET_PATH = /\/secret$/

const isTakenSecret = (error: unknown) =>
  error instanceof ServiceError &&
  error.kind === 'conflict' &&
  error.details?.some(({ path }) => SECRET_PATH.test(path)) === true

async function recordRefusal(caller: UserPrincipal, journal: Journal, domainKey: number | undefined): Promise<void> {
  await outsideTrial(
    async () =>
      await journal.change(caller, (_tx, record) => {
        record({ operation: 'client.refuse_secret', ...(domainKey === undefined ? {} : { domainKey }), entityKeys: [] })
        return Promise.resolve()
      }),
  )
}
