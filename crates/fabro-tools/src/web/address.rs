//! Which addresses belong to the public internet.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether an address is one of the public internet: not of this machine, this network or a private
/// one, not for documentation or measurements, and not multicast.
///
/// An IPv6 address that stands for an IPv4 address (mapped, NAT64, 6to4) is as public as that one.
/// Of IPv6 only addresses assigned for global use count; Teredo does not.
///
/// ```
/// use fabro_tools::web::is_public;
///
/// assert!(is_public("93.184.215.14".parse()?));
/// assert!(!is_public("169.254.169.254".parse()?));
/// assert!(!is_public("::ffff:10.0.0.1".parse()?));
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
pub fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

const V4: [([u8; 4], u32); 16] = [
    // This network.
    ([0, 0, 0, 0], 8),
    // Private networks.
    ([10, 0, 0, 0], 8),
    ([172, 16, 0, 0], 12),
    ([192, 168, 0, 0], 16),
    // Behind a provider's address translation.
    ([100, 64, 0, 0], 10),
    // This machine.
    ([127, 0, 0, 0], 8),
    // This link; clouds serve secrets at 169.254.169.254.
    ([169, 254, 0, 0], 16),
    // A cloud's own services, reached by its machines only.
    ([168, 63, 129, 16], 32),
    // Protocols.
    ([192, 0, 0, 0], 24),
    // Relays of 6to4.
    ([192, 88, 99, 0], 24),
    // Measurements.
    ([198, 18, 0, 0], 15),
    // Documentation.
    ([192, 0, 2, 0], 24),
    ([198, 51, 100, 0], 24),
    ([203, 0, 113, 0], 24),
    // Multicast.
    ([224, 0, 0, 0], 4),
    // Reserved, and broadcast.
    ([240, 0, 0, 0], 4),
];

/// Parts of `2000::/3`.
const V6: [([u16; 8], u32); 3] = [
    // Protocols: Teredo, measurements, identifiers.
    ([0x2001, 0, 0, 0, 0, 0, 0, 0], 23),
    // Documentation.
    ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 0], 32),
    ([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20),
];

const GLOBAL: ([u16; 8], u32) = ([0x2000, 0, 0, 0, 0, 0, 0, 0], 3);

fn is_public_v4(address: Ipv4Addr) -> bool {
    let same = |(net, bits): &([u8; 4], u32)| {
        (address.to_bits() ^ Ipv4Addr::from(*net).to_bits()) >> (32 - bits) == 0
    };
    !V4.iter().any(same)
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(inner) = inner_v4(address) {
        return is_public_v4(inner);
    }
    let same = |(net, bits): &([u16; 8], u32)| {
        (address.to_bits() ^ Ipv6Addr::from(*net).to_bits()) >> (128 - bits) == 0
    };
    same(&GLOBAL) && !V6.iter().any(same)
}

/// The IPv4 address that packets to this one are sent to.
fn inner_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let ([0, 0, 0, 0, 0, 0xffff, high, low]
    | [0x64, 0xff9b, 0, 0, 0, 0, high, low]
    | [0x2002, high, low, ..]) = address.segments()
    else {
        return None;
    };
    Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(addresses: &str, expect: bool) {
        for address in addresses.split_whitespace() {
            assert_eq!(is_public(address.parse().unwrap()), expect, "{address}");
        }
    }

    #[test]
    fn addresses_of_the_internet_are_public() {
        check(
            "1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.215.14 100.63.255.255 100.128.0.0 \
             126.255.255.255 128.0.0.0 169.253.255.255 172.15.255.255 172.32.0.0 192.0.3.0 \
             192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 168.63.129.15",
            true,
        );
        check(
            "2606:4700:4700::1111 2a00:1450:4001:80b::200e 2001:4860:4860::8888 ::ffff:8.8.8.8 \
             64:ff9b::8.8.8.8 2002:808:808::1 2001:200::1",
            true,
        );
    }

    #[test]
    fn other_addresses_are_not() {
        check(
            "0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 \
             127.0.0.1 127.255.255.255 168.63.129.16 169.254.0.1 169.254.169.254 172.16.0.1 \
             172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 \
             198.19.255.255 198.51.100.7 203.0.113.9 224.0.0.1 239.255.255.255 240.0.0.1 \
             255.255.255.255",
            false,
        );
        check(
            ":: ::1 ::7f00:1 ::10.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:169.254.169.254 \
             ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b:1::8.8.8.8 100::1 \
             2001::1 2001:0:808:808::f5ff:fffe 2001:2::1 2001:db8::1 2002:7f00:1::1 \
             2002:a9fe:a9fe:: 3fff::1 4000::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 \
             ff02::1",
            false,
        );
    }
}
