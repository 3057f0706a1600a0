/** How often wrong external keys may be tried: a key opens everything that the device is given (contract decision 73). */
import { LoginThrottle } from '#api/identity/index.ts'
import type { ThrottleRules } from '#api/identity/index.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'

const PER_EXTERNAL_ID: BucketRule = { burst: 10, perMinute: 10 }
const PER_ADDRESS: BucketRule = { burst: 100, perMinute: 100 }
/** No address of a device is known beforehand: these two are not stricter than the others. */
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
    rules: RULES,
    shared,
    tooMany: 'too many wrong external keys: try again later',
  })
}
