// SPDX-License-Identifier: Apache-2.0

// Package images fetches what a guest is made of (QEMU, kernels, userland,
// the DDP package of the E810) and builds initramfs archives from it, in a
// cache that works offline once it is filled. Tests get tshark from it, too, and
// what modules for a kernel are built with.
//
// Everything comes from the packages of the Debian distribution. They are
// resolved and downloaded by apt-get in a private state inside the cache, from
// the mirror that the host's own apt is configured with, and verified against
// the archive keyring; nothing on the host is changed and no root is needed.
// Maintainer scripts never run.
//
// # The cache
//
//	lock                     held (flock) while anything below changes
//	apt/RELEASE/             private apt state: sources, lists
//	entries/NAME-KEY/        immutable: manifest.json and root/
//	current/NAME             symlink to the entry in use
//	tmp/                     unfinished work; whatever is here is rubbish
//
// KEY is a hash of what the entry was made of (package hashes, module files)
// and of the recipe in this package, so an entry is never modified: a newer
// one appears beside it and the symlink is replaced atomically. The previous
// generation stays, so a QEMU started from it keeps its files.
//
// # Traps
//
//   - A QEMU from the cache is not started directly but through the dynamic
//     loader of its own tree: always use all of [QEMU].Argv.
//   - [Cache.QEMU], [Cache.Kernel], [Cache.Initramfs] and [Cache.Extra] only touch the network
//     if the entry is missing or was made by another recipe. [Cache.Build]
//     always asks the mirror.
//   - An entry of a developer's kernel is keyed by path, size and modification
//     time of its image and modules, not by their content.
package images
