export { networkOf } from './address.ts'
export { isKnownAddress, purgeKnownAddresses, rememberAddress } from './known-addresses.ts'
export { RULES, LoginThrottle } from './login-throttle.ts'
export type { Admission, ThrottleRules } from './login-throttle.ts'
