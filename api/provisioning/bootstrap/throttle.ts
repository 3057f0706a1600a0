/** Limits of wrong external keys: a key gives access to the secrets of its device (contract decision 73). */
import { LoginThrottle, guessRules } from '#api/identity/index.ts'
import type { BucketRule, SharedLimits } from '#core/limits/index.ts'

const PER_EXTERNAL_ID: BucketRule = { burst: 10, perMinute: 10 }
const PER_CALLER: BucketRule = { burst: 100, perMinute: 100 }
const PER_ADDRESS: BucketRule = { burst: 100, perMinute: 100 }

/** Limits the keys that one user tries with configurations, whatever their external ids are (contract decision 87). */
export function createCallerThrottle(shared: SharedLimits | undefined): LoginThrottle {
  return new LoginThrottle({
    purpose: 'bootstrap caller',
    limit: 'bootstrap_key',
    rules: guessRules(PER_CALLER, PER_ADDRESS),
    shared,
    tooMany: 'too many wrong external keys: retry later',
  })
}

export function createKeyThrottle(shared: SharedLimits | undefined): LoginThrottle {
  return new LoginThrottle({
    purpose: 'bootstrap',
    limit: 'bootstrap_key',
    rules: guessRules(PER_EXTERNAL_ID, PER_ADDRESS),
    shared,
    tooMany: 'too many wrong external keys: retry later',
  })
}
