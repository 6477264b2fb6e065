// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace spillway::interpose {

/// The path of this library's file; "" if it is unknown.
std::string own_path();
/// The directory of this library's file.
std::string own_folder();
/// Whether the process binds to this library's symbols rather than to another copy's.
bool comes_first();
/// The path of another copy of this library later in the search order; "" if there is none.
std::string copy_behind();

/// The directory that programs must search for the Python package around this library: FOLDER for
/// FOLDER/spillway/lib. "" if it is not in a package.
std::string package_folder();

/// Prepends package_folder() to PYTHONPATH, so that Python programs of this process and of its
/// children find the package. Does nothing if it is already there, or is a directory of installed
/// packages. Call it before there are threads: it changes the environment.
void offer_package();

}  // namespace spillway::interpose
