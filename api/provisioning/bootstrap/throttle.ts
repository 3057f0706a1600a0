/** Limits of wrong external keys: a key gives access to the secrets of its device (contract decision 73). */
import { LoginThrottle } from '#api/identity/index.ts'
import type { ThrottleRules } from '#api/identity/index.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'

const PER_EXTERNAL_ID: BucketRule = { burst: 10, perMinute: 10 }
const PER_ADDRESS: BucketRule = { burst: 100, perMinute: 100 }
/** Addresses of devices are never known in advance, so `pair` and `known` are not stricter than the other limits. */
const RULES: ThrottleRules = {
  account: PER_EXTERNAL_ID,
  pair: PER_EXTERNAL_ID,
  address: PER_ADDRESS,
  known: PER_EXTERNAL_ID,
  paceMs: 0,
}

export function createKeyThrottle(shared: SharedLimits | undefined): LoginThrottle {
  return new LoginThrottle({
    purpose: 'bootstrap',
    limit: 'bootstrap_key',
    rules: RULES,
    shared,
    tooMany: 'too many wrong external keys: retry later',
  })
}
